"""Programs that can't be started; in most tests Linux itself raises the error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from berth.train.failures.start_errors import MOST_STRING_BYTES, passable, start_error_sentence


def start_error(command: list[str], environment: dict[str, str], cwd: str = "/") -> str:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        subprocess.run(command, env=environment, cwd=cwd, check=False)
    return start_error_sentence("train.py", command, environment, caught.value, cwd)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {"A": "x", "SM_HPS": "y" * 200_000}, ["SM_HPS has 200,008 bytes", "131,072"]),
        (["z" * 131_072], {}, ["argument 3 (zzz"]),
        (
            [],
            {f"V{number}": "x" * (100_000 + number) for number in range(100)},
            ["the largest is V99 with 100,104", f"{os.sysconf('SC_ARG_MAX'):,}"],
        ),
    ],
    ids=["variable", "argument", "sum"],
)
def test_what_is_too_large_is_named(arguments: list[str], environment: dict[str, str], words: list[str]) -> None:
    sentence = start_error([sys.executable, "-c", "", *arguments], environment)
    assert all(text in sentence for text in words), sentence


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("echo", 0o755, "needs a first line such as #!/bin/bash"),
        ("#!/no/such/shell\n", 0o755, "the interpreter in its first line"),
        ("#!/bin/sh\n", 0o644, "run chmod +x on it"),
    ],
    ids=["no first line", "no interpreter", "not executable"],
)
def test_file_that_can_not_be_executed(tmp_path: Path, text: str, mode: int, words: str) -> None:
    program = tmp_path / "tool"
    program.write_text(text)
    program.chmod(mode)
    sentence = start_error([str(program)], {})
    assert words in sentence
    assert str(program) in sentence


def test_no_memory_or_processes_left() -> None:
    for number, words in ((12, "no memory"), (11, "no room for one more process")):
        error = OSError(number, os.strerror(number))
        assert words in start_error_sentence("train.py", ["python"], {}, error)


def test_too_large_variables_are_removed_with_warning() -> None:
    at_limit, over = "x" * (MOST_STRING_BYTES - len("A=") - 1), "x" * (MOST_STRING_BYTES - len("B=") + 0)
    kept, warning = passable({"A": at_limit, "B": over, "C": ""})
    assert kept == {"A": at_limit, "C": ""}
    assert "B (131,073 bytes)" in warning
    subprocess.run([sys.executable, "-c", ""], env=kept, check=True)
    assert passable(kept) == (kept, "")
