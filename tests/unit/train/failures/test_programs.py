"""Runs the failing programs of bench/failing with the real wrapper and start hook, and checks their explanations."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.failing import cases
from bench.failing.cases import CASES, Case
from berth.train.launching.runfolder import RunFolder
from tests.unit.train.launching.wrapped import Wrapped, program, until

FAILING = Path(cases.__file__).parent
HOOK = "from berth.train.startup import start_hook\nstart_hook.start()\n"


class Run(Wrapped):
    """One program of bench/failing in its own wrapper."""

    def __init__(self, tmp_path: Path, name: str, environment: Mapping[str, str] = {}) -> None:
        code = tmp_path / "code"
        shutil.copytree(FAILING, code)
        hook = tmp_path / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(HOOK)  # like the image's .pth file
        environ = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{hook}:{code}:{os.environ.get('PYTHONPATH', '')}",
            "PYTHONUNBUFFERED": "1",
            "ACCELERATE_USE_CPU": "true",
            **environment,
        }
        command = ("bash", name) if name.endswith(".sh") else (sys.executable, name)
        fields = {"command": command, "cwd": str(code), "environment": environ, "code_dir": str(code), "name": name}
        folder = RunFolder(tmp_path / "run")
        super().__init__(folder, program(folder, **fields, host="algo-1", shell=name.endswith(".sh")))


NIGHTLY = {
    "launched_arguments.sh",
    "launched_kill.py",
    "torchrun_by_subprocess.py",
    "accelerate_launch.sh",
    "orphans.py",
    "deep_stack.py",
}
"""Programs that import torch or transformers, often in several processes; others fail in the same way without them."""


def _parameters() -> list[object]:
    cases = [case for case in CASES if not case.in_image]
    marks = [pytest.mark.nightly if case.program in NIGHTLY else () for case in cases]
    ids = ["-".join([case.program, *case.environment]) for case in cases]
    return [pytest.param(case, id=name, marks=mark) for case, name, mark in zip(cases, ids, marks, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("case", _parameters())
def test_failing_program_is_explained(case: Case, tmp_path: Path) -> None:
    run = Run(tmp_path, case.program, case.environment)
    assert run.wait() == case.code
    assert all(text.encode() in run.log for text in case.log)
    if case.code == 0:
        assert run.folder.reports() == []
        return
    sentence = run.report.sentence
    assert sentence.startswith(case.prefix), sentence
    assert all(text in sentence for text in case.contains), sentence
    assert not any(text in sentence for text in case.excludes), sentence
    assert not run.report.echo


@pytest.mark.parametrize("environment", [{}, {"NO_HANDLER": "1"}], ids=["with handler", "without handler"])
def test_stop_is_not_blamed_on_handled_exception(environment: dict[str, str], tmp_path: Path) -> None:
    run = Run(tmp_path, "handled_then_stopped.py", environment)
    until(lambda: b"trains" in run.log)
    stopped_at = time.time()
    run.folder.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert run.report.when >= stopped_at, "the stop is the cause, not the earlier exception"
    assert "S3 said 503" not in run.report.sentence
    assert b"ConnectionError: S3 said 503" in run.log, "the log must contain the exception"


def test_long_lines_and_other_bytes_reach_log_unchanged(tmp_path: Path) -> None:
    run = Run(tmp_path, "odd_bytes.py")
    run.wait()
    lines = run.log.split(b"\n")
    assert "gr\xfc\xdfe".encode("latin-1") in lines
    assert b"x" * 1_000_000 + b"<end>" in lines
    assert ("y" * 70_000 + "\N{SNOWMAN}" * 400_000).encode() in lines
    assert "caf\xe9".encode("latin-1") in lines
