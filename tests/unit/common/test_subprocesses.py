"""The output of programs, and programs that hang."""

from collections.abc import Callable
from pathlib import Path

import pytest

from berth.common.subprocesses import ask
from tests.waiting import until


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(["printf", "a\\nb\\n\\n"], "a\nb", id="lines"),
        pytest.param(sh("printf 'v\\3511'"), "v\N{REPLACEMENT CHARACTER}1", id="invalid-utf-8"),
        pytest.param(sh("echo complaint >&2; echo 1.0"), "1.0", id="stderr-is-ignored"),
        pytest.param(sh("read line; echo got $line"), "got", id="stdin-is-empty"),
        pytest.param(sh("echo 1.0; exit 1"), "", id="fails"),
        pytest.param(sh("echo 1.0; kill -9 $$"), "", id="killed"),
        pytest.param(["no-such-program"], "", id="missing"),
        pytest.param(["/"], "", id="a-folder"),
    ],
)
def test_ask_returns_stdout_of_successful_commands(command: list[str], output: str) -> None:
    assert ask(command) == output


def hangs(started: Path) -> list[str]:
    return sh(f"echo 1.0; echo $$ > {started}; exec sleep 600")


def its_plugin_hangs(started: Path) -> list[str]:
    return sh(f"sleep 600 & echo $! > {started}; echo 1.0; wait")


def closes_its_output_and_hangs(started: Path) -> list[str]:
    return sh(f"echo 1.0; exec >&-; echo $$ > {started}; exec sleep 600")


@pytest.mark.slow
@pytest.mark.parametrize("command", [hangs, its_plugin_hangs, closes_its_output_and_hangs])
def test_hanging_command_is_killed_with_its_children(command: Callable[[Path], list[str]], tmp_path: Path) -> None:
    started = tmp_path / "started"
    assert ask(command(started), patience_s=1) == ""
    process = int(started.read_text())
    until(lambda: not lives(process), "the killed process has ended")  # later, above all on a busy machine


def lives(process: int) -> bool:
    """Whether the process runs. A killed process may stay a zombie until its new parent has waited for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
