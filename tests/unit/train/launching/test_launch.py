"""What is started on a host, and when its failure is told though the launcher does not end."""

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


def test_a_launcher_that_runs_on_after_a_rank_failed_is_overdue(tmp_path: Path, events: Events) -> None:
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


def test_a_job_that_ends_is_not_watched_any_longer(
    tmp_path: Path, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_OVERDUE_SECONDS", 30.0)
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        run.watch_failures()
        save_report(run.folder.path / "failures", FailureReport("no rows", rank=1))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert events.empty()


@pytest.mark.parametrize(("ranks", "code"), [(0, 1), (1, 0)])
def test_a_launcher_that_ends_well_without_a_rank_has_failed(
    ranks: int, code: int, tmp_path: Path, events: Events
) -> None:
    """As mpirun with --version among the user's options does."""
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        for rank in range(ranks):
            (run.folder.path / "events" / str(rank)).touch()
        run.start([sys.executable, "-c", "print('mpirun (Open MPI) 4.1.8')"], os.environ)
        assert events.get(timeout=10) == Exited(code)
        said = [report.sentence for report in run.reports()]
    assert [sentence.partition(";")[0] for sentence in said] == (
        [] if ranks else ["mpirun ended with exit code 0 and started no rank"]
    )


# As Open MPI 4.1.8 writes it where no network is left between two hosts.
ABORT = """\
--------------------------------------------------------------------------
At least one pair of MPI processes are unable to reach each other for
MPI communications.

  BTLs attempted: self vader

Your MPI job is now going to abort; sorry.
--------------------------------------------------------------------------
"""


def test_a_launcher_that_runs_on_after_it_said_that_it_aborts_is_overdue(tmp_path: Path, events: Events) -> None:
    code = f"import time; print({ABORT!r}, flush=True); time.sleep(60)"
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        run.start([sys.executable, "-c", code], os.environ)
        assert events.get(timeout=10) == LauncherOverdue("mpirun said that it aborts the job", 0.5)
        run.stop()
        (report,) = run.reports()
        assert events.get(timeout=10) == Exited(-15)
    assert "BTLs attempted: self vader Your MPI job is now going to abort; sorry." in report.sentence
    assert not report.echo


@pytest.mark.parametrize(("code", "words"), [(1, "now going to abort"), (0, "")])
def test_why_a_launcher_aborted_is_a_failure_if_it_ends_with_one(
    code: int, words: str, tmp_path: Path, events: Events
) -> None:
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        (run.folder.path / "events" / "0").touch()
        run.start([sys.executable, "-c", f"print({ABORT!r}); raise SystemExit({code})"], os.environ)
        assert events.get(timeout=10) == Exited(code)
        assert [words in report.sentence for report in run.reports()] == ([True] if words else [])


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
def test_whether_mpirun_ends_a_job_whose_rank_failed(options: list[str], variables: dict[str, str], ends: bool) -> None:
    assert ends_on_failure(["mpirun", *options, "python", "-m", "berth.train.launching.rank"], variables) is ends


@pytest.mark.parametrize(
    ("report", "echo"),
    [
        (FailureReport("killed", code=137), True),
        (FailureReport("raised at our signal, and killed", signalled=True), True),
        (FailureReport("raised"), False),
    ],
)
def test_a_rank_that_we_ended_ourselves_explains_nothing(
    report: FailureReport, echo: bool, tmp_path: Path, events: Events
) -> None:
    with contextlib.closing(LocalRun(tmp_path / "run", events)) as run:
        save_report(run.folder.path / "failures", replace(report, rank=0, when=time.time() - 60))
        save_report(run.folder.path / "failures", replace(report, rank=1, when=time.time() + 60))
        run.stop()
        assert [each.echo for each in run.reports()] == [False, echo]
