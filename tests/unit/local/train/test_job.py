"""Jobs that are stopped, refused or successful."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.local import cleanup
from berth.local.chown import FolderSnapshot
from berth.local.session import RunSession
from berth.local.signals import Interrupted
from berth.local.train import job
from berth.local.train.job_log import JobLog


@pytest.fixture
def created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> job._Running:
    """A job of three hosts whose containers are created; its output folder contains an earlier job's model."""
    session = RunSession(MagicMock(), "no-image", say=lambda _: None, stop_grace=1.0)
    session.client.api.containers.return_value = []
    session.scratch = tmp_path / "run"
    (session.scratch / "checkpoints").mkdir(parents=True)
    output = tmp_path / "out"
    output.mkdir()
    (output / "model.tar.gz").write_text("of an earlier job")
    monkeypatch.setattr(RunSession, "chown_scratch", MagicMock())
    monkeypatch.setattr(job, "chown_new_files", MagicMock())
    containers = {name: MagicMock(id=name) for name in ("algo-1", "algo-2", "algo-3")}
    checkpoints = FolderSnapshot.take(session.scratch / "checkpoints")
    log = JobLog(output, print, session.interrupts)
    return job._Running(session, job.TrainingJob({}, output), containers, checkpoints, log)


def test_stopped_job_writes_failure_files_and_keeps_no_model(created: job._Running) -> None:
    printed: list[str] = []
    session, output = created.session, created.job.output
    session.say = printed.append
    for host, container in created.containers.items():
        for folder in ("model", "output"):
            (session.scratch / host / folder).mkdir(parents=True)
        code = 143 if host == "algo-1" else 0
        container.attrs = {"State": {"ExitCode": code, "FinishedAt": "", "OOMKilled": False}}
    (session.scratch / "algo-1/output/failure").write_text("the job was stopped by a signal")
    (session.scratch / "algo-2/model/weights").write_text("half")
    with created.log:
        stop = job._stopped(created, Interrupted(signal.SIGINT))
    assert stop.exit_code == 130
    assert str(stop) == (
        f"the job was stopped by Ctrl-C; its log is {output / 'train.log'}, and how its hosts ended is in "
        "failure-algo-1 next to it"
    )
    assert printed == [
        f"model.tar.gz was from an earlier job: it is now {output / 'earlier-model.tar.gz'}.",
        "The files in /opt/ml/model are not kept: a stopped job gets no model.tar.gz.",
    ]
    names = {path.name for path in output.iterdir()}
    assert names == {"train.log", "failure-algo-1", "earlier-model.tar.gz"}


def test_ctrl_c_before_the_start_does_not_wait_for_logs(created: job._Running, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = MagicMock()
    monkeypatch.setattr(job, "LogFollower", follower)
    created.session.interrupts._caught(signal.SIGINT, None)
    with pytest.raises(Interrupted, match=r"^interrupted; what this command started is removed$"):
        job._carry_out(created)
    follower.return_value.join.assert_not_called()
    assert (created.job.output / "model.tar.gz").read_text() == "of an earlier job"


def test_logs_of_all_hosts_share_one_deadline(created: job._Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("algo-1", "algo-3"):
        created.session.start(created.containers[name])
    clock = [100.0]
    waited: list[tuple[str, float]] = []

    def follower(name: str) -> MagicMock:
        def join(seconds: float) -> None:
            waited.append((name, seconds))
            clock[0] += seconds

        return MagicMock(join=join)

    monkeypatch.setattr(job, "time", MagicMock(monotonic=lambda: clock[0]))
    job._settle(created, {name: follower(name) for name in created.containers})
    assert waited == [("algo-1", 10.0), ("algo-3", 0.0)]


@pytest.mark.parametrize("own_folder", [False, True], ids=["without", "with"])
def test_successful_job_reports_output_archive_and_deleted_checkpoints(
    created: job._Running, own_folder: bool, tmp_path: Path
) -> None:
    printed: list[str] = []
    created.session.say = printed.append
    saved = tmp_path / "kept" if own_folder else created.checkpoints.folder
    (saved / "checkpoint-1").mkdir(parents=True)
    for name, container in created.containers.items():
        container.attrs = {"State": {"ExitCode": 0, "FinishedAt": "", "OOMKilled": False}}
        (created.session.scratch / name / "model").mkdir(parents=True)
    (created.session.scratch / "algo-1" / "model" / "weights").write_text("new")
    (created.session.scratch / "algo-1" / "output" / "data").mkdir(parents=True)
    (created.session.scratch / "algo-1" / "output" / "data" / "plot").write_text("a plot")
    outcome = job._collect(replace(created, checkpoints=FolderSnapshot.take(saved)), 0.0, timed_out=False)
    assert outcome.model_archive == created.job.output / "model.tar.gz"
    deleted = ["Checkpoints of a successful job are not kept: pass a folder for them with --checkpoints."]
    archive = created.job.output / "output.tar.gz"
    assert outcome.output_archive == archive
    assert printed == [
        f"model.tar.gz was from an earlier job: it is now {created.job.output / 'earlier-model.tar.gz'}.",
        *([] if own_folder else deleted),
        f"The job's files in /opt/ml/output/data are in {archive}.",
    ]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """An engine with 1 GB of memory and two cores."""
    double = MagicMock(**{"info.return_value": {"MemTotal": 1e9, "NCPU": 2}})
    monkeypatch.setattr(job, "connect", lambda: double)
    monkeypatch.setattr(cleanup, "scratch_root", lambda: tmp_path / "scratch")
    monkeypatch.setattr(cleanup, "remove_stale_runs", MagicMock())
    return double


@pytest.mark.usefixtures("engine")
def test_refused_job_creates_no_folder(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text("{}")
    wrong: dict[str, dict[str, Any]] = {
        "1000 hosts need": {"hosts": 1000},
        "no NVIDIA runtime": {"gpus": True},
        "there is no file or folder .*nope": {"model": tmp_path / "nope"},
        "no weights": {"model": tmp_path / "empty"},
    }
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/config.json").write_text("{}")
    for sentence, words in wrong.items():
        refused_job = job.TrainingJob(
            {"train": tmp_path / "train.json"}, tmp_path / "new/out", checkpoints=tmp_path / "new/kept", **words
        )
        with pytest.raises(UserError, match=sentence):
            job.run_training_job(refused_job, image="any", say=lambda _: None)
        assert {path.name for path in tmp_path.iterdir()} <= {"train.json", "empty", "scratch"}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("hosts", "warned"), [(2, False), (40, True)])
def test_warning_for_more_hosts_than_cores(
    hosts: int, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.checks, "available_mb", lambda engines_mb: 64_000)
    (tmp_path / "empty").mkdir()
    printed: list[str] = []
    slow_job = job.TrainingJob(
        {}, tmp_path / "out", hosts=hosts, hyperparameters={"sagemaker_program": "train.py"}, model=tmp_path / "empty"
    )
    with pytest.raises(UserError, match="empty"):  # after the warning, and before any container
        job.run_training_job(slow_job, image="any", say=printed.append)
    assert any(f"{hosts} hosts share 2 cores" in line for line in printed) == warned
