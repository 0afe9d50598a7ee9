"""What a path on the command line may not be."""

from pathlib import Path

import pytest

from berth.common.errors import Problems, UserError
from berth.local import archive, opt_ml
from berth.local.output_folders import check_writable
from berth.local.paths import is_hub_name, refuse_address
from berth.local.train.job import TrainingJob, check_job


@pytest.mark.parametrize("address", ["s3://bucket/data", "https://host/data.json", "hdfs://host/x", "gs://bucket"])
def test_an_address_is_named_as_it_was_written(address: str) -> None:
    for refused in (refuse_address, opt_ml.find_channels, archive.check_model, check_writable):
        with pytest.raises(UserError, match=f"^{address} is an address"):
            refused(Path(address))


def test_a_file_address_leads_to_the_path() -> None:
    with pytest.raises(UserError, match="write only the path, /data/train"):
        refuse_address(Path("file:///data/train"))
    for path in ("data", "c:", "/tmp/s3:/x", "a:b/c", "./data:x"):
        refuse_address(Path(path))


@pytest.mark.parametrize(
    ("name", "of_hub"),
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
def test_names_of_the_hub(name: str, of_hub: bool) -> None:
    assert is_hub_name(Path(name)) == of_hub


def said_of(job: TrainingJob) -> str:
    problems = Problems()
    check_job(job, problems)
    with pytest.raises(UserError) as refused:
        problems.refuse()
    return str(refused.value)


def test_a_model_of_the_hub_is_a_hyperparameter_of_run_qa(tmp_path: Path) -> None:
    job = TrainingJob({}, tmp_path, model=Path("bert-base-uncased"))
    assert "`-p model_name_or_path=bert-base-uncased`" in said_of(job)
    own = TrainingJob({}, tmp_path, model=Path("bert-base-uncased"), environment={"SAGEMAKER_PROGRAM": "train.py"})
    assert "-p " not in said_of(own)


def test_a_program_in_place_of_its_folder_is_split(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    said = said_of(TrainingJob({}, tmp_path, code=tmp_path / "train.py"))
    assert f"`--code {tmp_path} --entry-point train.py`" in said


def test_files_beside_the_channels_are_known(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for name in ("train/a.json", "labels.csv", ".hidden"):
        (tmp_path / name).touch()
    assert opt_ml.files_beside_channels(tmp_path) == ["labels.csv"]
    assert opt_ml.files_beside_channels(tmp_path / "train") == []
    assert opt_ml.files_beside_channels(tmp_path / "labels.csv") == []
