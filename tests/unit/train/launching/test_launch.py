"""The command of a host: its exit code, mpirun that does not end after a failure, and reports of killed ranks."""

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from berth.train.failures.failure import FailureReport, save_report
from berth.train.hosts.events import Events, Exited, LauncherOverdue
from berth.train.launching import launch
from berth.train.launching.launch import LocalRun
from berth.train.planning.mpirun import ends_on_failure


@pytest.fixture
def events() -> Events:
    return SimpleQueue()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_LOOK_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(launch, "_OVERDUE_SECONDS", 0.5)


@pytest.mark.slow
def test_launcher_is_overdue_after_a_rank_failed(tmp_path: Path, events: Events) -> None:
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        run.start([sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
        run.watch_failures()
        with pytest.raises(Empty):
            events.get(timeout=0.7)
        save_report(run.folder.path / "failures", FailureReport("no rows", rank=1))
        began = time.monotonic()
        assert events.get(timeout=5) == LauncherOverdue("a rank failed", 0.5)
        assert time.monotonic() - began >= 0.5
        run.stop()
        assert events.get(timeout=5) == Exited(-15)


def test_close_ends_the_watch_for_failures(tmp_path: Path, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_OVERDUE_SECONDS", 30.0)
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        run.watch_failures()
        save_report(run.folder.path / "failures", FailureReport("no rows", rank=1))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert events.empty()


# What Open MPI 4.1.8 prints if two hosts share no network that it may use.
ABORT = """\
--------------------------------------------------------------------------
At least one pair of MPI processes are unable to reach each other for
MPI communications.

  BTLs attempted: self vader

Your MPI job is now going to abort; sorry.
--------------------------------------------------------------------------
"""


def test_launcher_is_overdue_after_it_announced_an_abort(tmp_path: Path, events: Events) -> None:
    code = f"import time; print({ABORT!r}, flush=True); time.sleep(60)"
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        run.start([sys.executable, "-c", code], os.environ)
        assert events.get(timeout=10) == LauncherOverdue("mpirun announced that it aborts the job", 0.5)
        run.stop()
        (report,) = run.reports()
        assert events.get(timeout=10) == Exited(-15)
    assert "BTLs attempted: self vader Your MPI job is now going to abort; sorry." in report.sentence
    assert not report.echo


VERSION = "print('mpirun (Open MPI) 4.1.8')"


@pytest.mark.parametrize(
    ("program", "started", "code", "sentence"),
    [
        (VERSION, False, 1, "mpirun ended with exit code 0 and started no rank"),
        (VERSION, True, 0, None),
        (f"print({ABORT!r}); raise SystemExit(1)", True, 1, "now going to abort"),
        (f"print({ABORT!r})", True, 0, None),
    ],
    ids=["--version among the user's options", "success", "announced abort", "success after an announced abort"],
)
def test_launcher_that_ends_without_a_report_of_a_rank(
    program: str, started: bool, code: int, sentence: str | None, tmp_path: Path, events: Events
) -> None:
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        if started:
            (run.folder.path / "events" / "0").touch()
        run.start([sys.executable, "-c", program], os.environ)
        assert events.get(timeout=10) == Exited(code)
        assert [sentence in report.sentence for report in run.reports()] == ([True] if sentence else [])


@pytest.mark.parametrize(
    ("options", "variables", "ends"),
    [
        (["--mca", "orte_abort_on_non_zero_status", "1"], {}, True),
        (["--mca", "orte_abort_on_non_zero_status", "0"], {}, False),
        ([], {"OMPI_MCA_orte_abort_on_non_zero_status": "1"}, True),
        ([], {"OMPI_MCA_orte_abort_on_non_zero_status": "0"}, False),
        (["-np", "1"], {}, False),
    ],
)
def test_ends_on_failure(options: list[str], variables: dict[str, str], ends: bool) -> None:
    assert ends_on_failure(["mpirun", *options, "python", "-m", "berth.train.launching.rank"], variables) is ends


@pytest.mark.parametrize(
    ("report", "echo"),
    [
        (FailureReport("killed", code=137), True),
        (FailureReport("raised at our signal, and killed", signalled=True), True),
        (FailureReport("raised"), False),
    ],
)
def test_rank_that_we_killed_is_an_echo(report: FailureReport, echo: bool, tmp_path: Path, events: Events) -> None:
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        save_report(run.folder.path / "failures", replace(report, rank=0, when=time.time() - 60))
        save_report(run.folder.path / "failures", replace(report, rank=1, when=time.time() + 60))
        run.stop()
        assert [each.echo for each in run.reports()] == [False, echo]
