"""Reading SageMaker's configuration files, also missing and broken ones."""

import json
from pathlib import Path

import pytest

from berth.contract.errors import JobError
from berth.train.planning.job import read_job


def write(root: Path, **files: object) -> Path:
    config = root / "input" / "config"
    config.mkdir(parents=True)
    for name, value in files.items():
        (config / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return root


def test_without_files_the_job_has_one_host_and_no_settings(tmp_path: Path) -> None:
    job = read_job(tmp_path, {})
    assert (job.hosts, job.current_host, job.leads, job.program, dict(job.hyperparameters)) == (
        ("algo-1",),
        "algo-1",
        True,
        None,
        {},
    )


def test_leader_is_the_first_host_in_the_file(tmp_path: Path) -> None:
    hosts = ["algo-10", "algo-2"]
    job = read_job(write(tmp_path, resourceconfig={"hosts": hosts, "current_host": "algo-2"}), {})
    assert job.leader == "algo-10"
    assert not job.leads


def test_hyperparameters_stay_strings(tmp_path: Path) -> None:
    hyperparameters = {"model_name_or_path": "123", "do_train": "True", "sagemaker_program": '"train.py"', "n": 3}
    job = read_job(write(tmp_path, hyperparameters=hyperparameters), {})
    assert job.hyperparameters["model_name_or_path"] == "123"
    assert job.hyperparameters["n"] == "3"
    assert job.program == "train.py"


def test_program_and_source_from_the_environment(tmp_path: Path) -> None:
    job = read_job(tmp_path, {"SAGEMAKER_PROGRAM": "mine.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/code"})
    assert (job.program, job.submit_directory) == ("mine.py", "/opt/ml/code")


BAD = {
    "not json": ({"hyperparameters": "{"}, "hyperparameters.json can't be read as JSON"),
    "not an object": ({"inputdataconfig": []}, "must hold a JSON object, not list"),
    "host not in list": (
        {"resourceconfig": {"hosts": ["a"], "current_host": "b"}},
        "this host is 'b' and the hosts are a",
    ),
    "host twice": (
        {"resourceconfig": {"hosts": ["a", "a"], "current_host": "a"}},
        "list every host exactly once",
    ),
    "host name": ({"resourceconfig": {"hosts": ["-oProxyCommand=x"]}}, "invalid host names"),
    "hosts not a list": ({"resourceconfig": {"hosts": "algo-1"}}, "hosts as a list of names"),
}


@pytest.mark.parametrize(("files", "sentence"), BAD.values(), ids=BAD.keys())
def test_broken_file_is_refused(tmp_path: Path, files: dict[str, object], sentence: str) -> None:
    with pytest.raises(JobError) as error:
        read_job(write(tmp_path, **files), {})
    assert sentence in str(error.value)


@pytest.mark.parametrize("text", ['"train.py"', "train.py", '"\\"train.py\\""', '" train.py "'])
def test_program_name_is_read_in_each_encoding(text: str, tmp_path: Path) -> None:
    assert read_job(write(tmp_path, hyperparameters={"sagemaker_program": text}), {}).program == "train.py"
