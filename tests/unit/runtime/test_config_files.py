"""The files of /opt/ml/input/config."""

import json
from pathlib import Path

import pytest

from berth.contract.errors import JobError
from berth.runtime import config_files
from berth.train.planning.job import read_job
from berth.train.run_qa.inputs import data
from berth.train.run_qa.recipe import Paths
from tests.files import write_files

# The files and contents that SageMaker writes for a job without options.
EVERY_JOB = {
    "hyperparameters": {},
    "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1"]},
    "inputdataconfig": None,
    "init-config": {"inputMode": "FILE", "channels": {}},
    "metric-definition-regex": [],
    "trainingjobconfig": {"TrainingJobName": "job"},
    "upstreamoutputdataconfig": [],
    "profilerconfig": {"ProfilingIntervalInMilliseconds": 500, "ProfilingParameters": {}},
}


def write(root: Path, **files: object) -> None:
    texts = {f"{name}.json": json.dumps(value) for name, value in files.items()}
    write_files(root / config_files.FOLDER, texts)


def test_job_without_options(tmp_path: Path) -> None:
    write(tmp_path, **EVERY_JOB)
    assert config_files.checkpoint_note(tmp_path) == config_files.checkpoint_note(tmp_path / "nothing") == ""
    job = read_job(tmp_path, {})
    assert (job.hosts, dict(job.input_data)) == (("algo-1",), {})


@pytest.mark.parametrize("text", ["null", "", " \n", "{}"])
def test_entry_and_run_qa_accept_empty_files(text: str, tmp_path: Path) -> None:
    names = ("hyperparameters", "resourceconfig", "inputdataconfig")
    write_files(tmp_path / config_files.FOLDER, {f"{name}.json": text for name in names})
    assert read_job(tmp_path, {}).hosts == ("algo-1",)
    assert data.channels(Paths(tmp_path)) == frozenset()


def test_checkpoint_folder_is_local_path_of_job(tmp_path: Path) -> None:
    assert config_files.checkpoint_folder(tmp_path) == tmp_path / "checkpoints"
    assert not config_files.wants_checkpoints(tmp_path)
    folder = tmp_path / "mine"
    write(tmp_path, checkpointconfig={"LocalPath": f"{folder}/", "S3Uri": "s3://bucket/checkpoints"})
    assert Paths(tmp_path).checkpoints == folder
    assert config_files.wants_checkpoints(tmp_path), "the folder need not exist yet"
    line = config_files.checkpoint_note(tmp_path)
    assert str(folder) in line
    assert "s3://bucket/checkpoints" in line


def test_checkpoint_config_without_local_path_means_default_folder(tmp_path: Path) -> None:
    write(tmp_path, checkpointconfig={"S3Uri": "s3://bucket/checkpoints"})
    assert config_files.checkpoint_folder(tmp_path) == tmp_path / "checkpoints"
    assert config_files.wants_checkpoints(tmp_path)


@pytest.mark.parametrize("path", ["relative/folder", 7])
def test_checkpoint_folder_must_be_absolute_path(path: object, tmp_path: Path) -> None:
    write(tmp_path, checkpointconfig={"LocalPath": path})
    with pytest.raises(JobError, match="checkpoint_local_path"):
        config_files.checkpoint_note(tmp_path)
