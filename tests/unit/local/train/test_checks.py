"""Problems that are reported before a container starts, and the log of a job."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.images.local_image import LocalImage
from berth.local import commands
from berth.local.signals import Interrupts
from berth.local.train import checks
from berth.local.train.job_log import JobLog


@pytest.mark.parametrize(
    ("pinned", "derived", "profile"),
    [
        ({"berth.transformers": "4.46.3", "berth.cuda": "none"}, False, "cpu"),
        ({"berth.transformers": "4.26.0", "berth.cuda": "12.4"}, False, "cu124"),
        ({"berth.transformers": "4.26.0", "berth.cuda": "13.0.3"}, False, "cu130"),
        ({"berth.transformers": "4.26.0", "berth.cuda": "none"}, True, ""),
        ({"berth.transformers": "5.23.0", "berth.cuda": "none"}, False, ""),
        ({}, False, ""),
    ],
)
def test_run_qa_is_refused_for_images_with_other_transformers(
    pinned: dict[str, str], derived: bool, profile: str
) -> None:
    image = LocalImage("berth-train:own", "sha256:aa", "train", "own", derived, {"Config": {"Labels": pinned}})
    if not profile:
        return checks.check_run_qa(image)
    with pytest.raises(UserError) as refused:
        checks.check_run_qa(image)
    begin = (
        f"run_qa, the kit's own program, is for transformers 5 and this image has {pinned['berth.transformers']}: train"
    )
    assert str(refused.value).startswith(f"{begin} with an image of the profile {profile}, or give a program of")


@pytest.mark.parametrize(
    ("hyperparameters", "environment", "message"),
    [
        pytest.param(
            {},
            {"BERTH_DISTRBUTION": "mpi"},
            "the variable BERTH_DISTRBUTION is not known: did you mean BERTH_DISTRIBUTION?",
            id="misspelt-variable",
        ),
        pytest.param(
            {"processes_per_host": "none-at-all"},
            {"BERTH_DISTRIBUTION": "mpy"},
            "BERTH_DISTRIBUTION must be none, mpi or smddp, not 'mpy'.\nprocesses_per_host must be a whole number "
            "from 1 to 256, not 'none-at-all'.",
            id="all-at-once",
        ),
    ],
)
def test_launch_options(hyperparameters: dict[str, str], environment: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        checks.check_launch_options(hyperparameters, environment)
    assert str(refused.value) == message
    checks.check_launch_options({"sagemaker_program": '"train.py"'}, {"BERTH_DISTRIBUTION": "mpi", "MINE": "1"})


def test_check_data_names_the_users_path(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(UserError, match=f"^{tmp_path} holds no data file"):
        checks.check_data({"train": tmp_path}, {})
    for hyperparameters in ({"do_train": "False"}, {"train_file": "a.csv"}):
        checks.check_data({"train": tmp_path}, hyperparameters)
    (tmp_path / "b.json").touch()
    (tmp_path / "test").mkdir()
    (tmp_path / "test/a.csv").touch()
    channels = {"validation": tmp_path, "test": tmp_path / "test"}
    checks.check_data(channels, {})  # prediction is off by default
    for hyperparameters, used in (({}, {"test": tmp_path / "test"}), ({"do_predict": "True"}, channels)):
        with pytest.raises(UserError, match=f"^{tmp_path / 'test'} holds no data file"):
            checks.check_data(used, hyperparameters)


def test_check_data_refuses_validation_data_in_the_training_channel(tmp_path: Path) -> None:
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"dev-v1\.1\.json in .* by its name validation data"):
        checks.check_data({"train": tmp_path}, {})
    checks.check_data({"train": tmp_path}, {"train_file": "train-v1.1.json"})


@pytest.mark.parametrize(
    ("hosts", "processes", "each_mb", "facts"),
    [
        (1000, 1, 40.0, ["1000 hosts need about 40 GB", "(40 MB each)", "19.1 GB free: ask for 477 or fewer with --h"]),
        (3, 200, 400.0, ["3 hosts with 200 processes each need about 240 GB", "47 or fewer in all", "_PER_HOST"]),
        (1, 48, 400.0, ["1 host with 48 processes each needs about 19 GB"]),
    ],
)
def test_check_memory_refuses_what_does_not_fit(hosts: int, processes: int, each_mb: float, facts: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        checks.check_memory(hosts, processes, each_mb, 19_100.0)
    assert [fact for fact in facts if fact not in str(refused.value)] == []


def test_check_memory_accepts_what_fits_and_a_single_host() -> None:
    checks.check_memory(477, 1, 40.0, 19_100.0)
    checks.check_memory(1, 47, 400.0, 19_100.0)
    checks.check_memory(1, 1, 400.0, 100.0)


@pytest.mark.parametrize(
    ("hyperparameters", "environment", "processes"),
    [({}, {"BERTH_PROCESSES_PER_HOST": "8"}, 8), ({"processes_per_host": "4"}, {}, 4), ({}, {}, 1)],
)
def test_processes_per_host(hyperparameters: dict[str, str], environment: dict[str, str], processes: int) -> None:
    assert checks.processes_per_host(hyperparameters, environment) == processes


@pytest.fixture
def no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose image accepts no hyperparameter."""
    image = LocalImage("berth-train:cpu", "sha256:aa", "train", "cpu", derived=False, attrs={"Config": {"Labels": {}}})
    monkeypatch.setattr(commands, "connect", MagicMock())
    monkeypatch.setattr(commands, "select_image", MagicMock(return_value=image))
    monkeypatch.setattr(
        checks, "check_hyperparameters", MagicMock(side_effect=UserError("1 hyperparameter can't be used."))
    )
    monkeypatch.delenv("NOTSET", raising=False)


@pytest.mark.usefixtures("no_image")
def test_run_train_reports_all_problems_together(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as refusal:
        commands.run_train(
            data=tmp_path / "nothing.json",
            model=tmp_path / "no-model",
            hosts=0,
            hyperparameter=["max_steps=-5", "noequals"],
            environment=["BAD-NAME=1", "NOTSET", "BERTH_DISTRIBUTION=mpirun"],
            output=tmp_path / "file",
        )
    assert str(refusal.value).split("\n") == [
        "--hyperparameter 'noequals' is not a pair: write name=value.",
        "-e 'BAD-NAME' is not a valid name of a variable: use letters, digits and _, without a digit first.",
        "-e NOTSET: there is no variable of that name here: export it, or write NAME=value.",
        f"there is no file or folder {tmp_path}/nothing.json: pass a data file, or a folder, optionally with train/ "
        "and validation/ in it.",
        "--hosts is 0 and must be at least 1.",
        f"there is no file or folder {tmp_path}/no-model: pass a model folder or a model.tar.gz.",
        f"{tmp_path}/file can't be made ({tmp_path}/file is not a folder): choose another.",
        "BERTH_DISTRIBUTION must be none, mpi or smddp, not 'mpirun'.",
        "1 hyperparameter can't be used.",
    ]
    assert refusal.value.exit_code == 1


@pytest.mark.usefixtures("no_image")
def test_run_serve_reports_all_problems_together(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        commands.run_serve(model=tmp_path / "nope", port=0)
    assert str(refusal.value) == (
        f"0 is not a port: choose one from 1 to 65535.\nthere is no file or folder {tmp_path}/nope: pass a model "
        "folder or a model.tar.gz."
    )


@pytest.mark.usefixtures("no_image")
def test_missing_program_does_not_cause_errors_about_run_qa(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        commands.run_train(
            code=tmp_path, entry_point="nope.py", hyperparameter=["mine=1"], environment=["NOTSET"], output=tmp_path
        )
    assert [problem.split(":")[0] for problem in str(refusal.value).split("\n")] == [
        "-e NOTSET",
        f"nope.py is not in {tmp_path}",
    ]
    with pytest.raises(UserError, match=r"^there is no folder [^ ]*gone: pass the folder that holds your program\.$"):
        commands.run_train(code=tmp_path / "gone", output=tmp_path)


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("ValueError: boom", "the job ended with exit code 3: ValueError: boom"),
        ("train.py ended with exit code 3; bad config", "train.py ended with exit code 3; bad config"),
        ("", "the job ended with exit code 3: see its log above."),
    ],
)
def test_exit_code_is_named_once(reason: str, line: str) -> None:
    assert commands._ending(3, reason) == line


def test_job_log_renames_the_earlier_log_and_removes_earlier_failure_files(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("earlier")
    (tmp_path / "failure-algo-2").write_text("earlier")
    interrupts = Interrupts()
    shown: list[str] = []
    with JobLog(tmp_path, shown.append, interrupts) as log:
        log.sink_of("algo-1")("step 1")
        interrupts.signum = 2
        log.sink_of("algo-2")("berth: failed: train.py on algo-2 was stopped by SIGTERM")
        files = log.keep_failures({"algo-1": "ValueError: boom"})
    assert shown == ["algo-1 | step 1"]
    assert (tmp_path / "train.log").read_text().splitlines() == [
        "algo-1 | step 1",
        "algo-2 | berth: failed: train.py on algo-2 was stopped by SIGTERM",
    ]
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "train.log"} == {
        "earlier-train.log": "earlier",
        "failure-algo-1": "ValueError: boom\n",
    }
    assert files == "failure-algo-1"
