"""Container paths in a job's failure reason become the user's, for channels, code and checkpoints."""

from pathlib import Path

import pytest

from berth.local.train.job import TrainingJob
from berth.local.train.own_paths import with_own_paths


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingJob:
    monkeypatch.chdir(tmp_path)
    Path("data/train").mkdir(parents=True)
    Path("held out.json").touch()
    channels = {"train": Path("data/train"), "training": Path("more"), "validation": Path("held out.json")}
    return TrainingJob(
        channels, Path("out"), model=Path("bert.tar.gz"), code=Path("src"), checkpoints=Path("saved"), environment={}
    )


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("bad row in /opt/ml/input/data/train/x.json, line 3", "bad row in data/train/x.json, line 3"),
        ("no file in /opt/ml/input/data/training.", "no file in more."),
        ("/opt/ml/input/data/validation/held out.json: empty", "held out.json: empty"),
        ("/opt/ml/input/data/model/config.json", "bert.tar.gz/config.json"),
        ("/opt/ml/code/train.py and /opt/ml/checkpoints", "src/train.py and saved"),
        ("/opt/ml/input/data/train-2/x and /mnt/opt/ml/code", "/opt/ml/input/data/train-2/x and /mnt/opt/ml/code"),
        ("/opt/ml/model is empty", "/opt/ml/model is empty"),
        (
            "set the job's variable PYTHONPATH to /opt/ml/code/src",
            "set the job's variable PYTHONPATH to /opt/ml/code/src",
        ),
    ],
)
def test_with_own_paths_replaces_container_paths(text: str, replaced: str, job: TrainingJob) -> None:
    assert with_own_paths(text, job) == replaced


def test_with_own_paths_changes_nothing_if_job_has_no_folders() -> None:
    assert with_own_paths("/opt/ml/code/train.py", TrainingJob({}, Path("out"))) == "/opt/ml/code/train.py"
