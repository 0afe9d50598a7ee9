"""Programs that are asked about themselves, and those that give no answer."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.common.subprocesses import ask


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(["printf", "a\\nb\\n\\n"], "a\nb", id="lines"),
        pytest.param(sh("printf 'v\\3511'"), "v\N{REPLACEMENT CHARACTER}1", id="no-unicode"),
        pytest.param(sh("echo complaint >&2; echo 1.0"), "1.0", id="stderr-is-left-out"),
        pytest.param(sh("read line; echo got $line"), "got", id="nothing-to-read"),
        pytest.param(sh("echo 1.0; exit 1"), "", id="fails"),
        pytest.param(sh("echo 1.0; kill -9 $$"), "", id="killed"),
        pytest.param(["no-such-program"], "", id="not-there"),
        pytest.param(["/"], "", id="a-folder"),
    ],
)
def test_what_is_said(command: list[str], said: str) -> None:
    assert ask(command) == said


def hangs(started: Path) -> list[str]:
    return sh(f"echo 1.0; echo $$ > {started}; exec sleep 600")


def its_plugin_hangs(started: Path) -> list[str]:
    return sh(f"sleep 600 & echo $! > {started}; echo 1.0; wait")


def closes_its_output_and_hangs(started: Path) -> list[str]:
    return sh(f"echo 1.0; exec >&-; echo $$ > {started}; exec sleep 600")


@pytest.mark.slow
@pytest.mark.parametrize("command", [hangs, its_plugin_hangs, closes_its_output_and_hangs])
def test_what_hangs_is_killed_with_all_that_it_started(command: Callable[[Path], list[str]], tmp_path: Path) -> None:
    started = tmp_path / "started"
    assert ask(command(started), patience_s=2) == ""
    deadline = time.monotonic() + 30  # for a machine that is busy: a kill is not done where it is asked for
    while lives(int(started.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not lives(int(started.read_text()))


def lives(process: int) -> bool:
    """Whether it runs: one that was killed may be a zombie until who adopted it has looked."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
