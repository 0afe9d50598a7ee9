"""Arguments that are not paths (URLs and hub names), and files next to the channels."""

from pathlib import Path

import pytest

from berth.common.errors import Problems, UserError
from berth.local import archive, opt_ml
from berth.local.output_folders import check_writable
from berth.local.paths import is_hub_name, refuse_address
from berth.local.train.job import TrainingJob, check_job


@pytest.mark.parametrize("address", ["s3://bucket/data", "https://host/data.json", "hdfs://host/x", "gs://bucket"])
def test_error_names_url_as_it_was_written(address: str) -> None:
    for check in (refuse_address, opt_ml.find_channels, archive.check_model, check_writable):
        with pytest.raises(UserError, match=f"^{address} is an address"):
            check(Path(address))


def test_error_for_file_url_names_path() -> None:
    with pytest.raises(UserError, match="write only the path, /data/train"):
        refuse_address(Path("file:///data/train"))
    for path in ("data", "c:", "/tmp/s3:/x", "a:b/c", "./data:x"):
        refuse_address(Path(path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert-base-uncased", True),
        ("google/bert_uncased", True),
        ("./model", True),
        ("out/a/model", False),
        ("/models/bert", False),
        ("out/model.tar.gz", False),
        ("../model", False),
    ],
)
def test_is_hub_name(name: str, expected: bool) -> None:
    assert is_hub_name(Path(name)) == expected


def job_problem(job: TrainingJob) -> str:
    problems = Problems()
    check_job(job, problems)
    with pytest.raises(UserError) as refused:
        problems.refuse()
    return str(refused.value)


def test_error_for_hub_name_recommends_hyperparameter_of_run_qa(tmp_path: Path) -> None:
    job = TrainingJob({}, tmp_path, model=Path("bert-base-uncased"))
    assert "`-p model_name_or_path=bert-base-uncased`" in job_problem(job)
    own = TrainingJob({}, tmp_path, model=Path("bert-base-uncased"), environment={"SAGEMAKER_PROGRAM": "train.py"})
    assert "-p " not in job_problem(own)


def test_error_for_program_as_code_names_folder_and_entry_point(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    problem = job_problem(TrainingJob({}, tmp_path, code=tmp_path / "train.py"))
    assert f"`--code {tmp_path} --entry-point train.py`" in problem


def test_files_beside_channels(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for name in ("train/a.json", "labels.csv", ".hidden"):
        (tmp_path / name).touch()
    assert opt_ml.files_beside_channels(tmp_path) == ["labels.csv"]
    assert opt_ml.files_beside_channels(tmp_path / "train") == []
    assert opt_ml.files_beside_channels(tmp_path / "labels.csv") == []
