"""How process 1 handles its arguments: its own command, an error, or another command."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from berth.runtime.dispatch import run_command


def refusal(arguments: Sequence[str]) -> str:
    return "train takes no arguments" if arguments[0] == "train" else ""


def not_run(name: str, error: OSError) -> str:
    return f"{name} can't be run ({error.strerror})"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ([], 7, ""),
        (["train"], 7, ""),
        (["train", "--epochs"], 2, "berth: error: train takes no arguments\n"),
        (["no-such-program"], 127, "berth: error: no-such-program can't be run (No such file or directory)\n"),
        (["/"], 126, "berth: error: / can't be run (Permission denied)\n"),
    ],
)
def test_own_command_and_errors(
    arguments: list[str], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments, "train", lambda: 7, refusal, not_run) == code
    assert capsys.readouterr().err == error


PROGRAM = """
from berth.runtime.dispatch import run_command
run_command(["sh", "-c", "echo $$; exit 3"], "train", int, lambda _: "", str)
"""


def test_other_command_replaces_process() -> None:
    running = subprocess.Popen([sys.executable, "-P", "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    output, _ = running.communicate(timeout=60)
    assert (running.returncode, output) == (3, f"{running.pid}\n")
