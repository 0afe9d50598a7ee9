"""/opt/ml of a training container: its files, and errors in channels before a container starts."""

from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.local import opt_ml
from tests.files import write_files


def files(root: Path, *names: str) -> Path:
    return write_files(root, dict.fromkeys(names, "x"))


RESOURCES_OF_ALGO_2 = """\
{
  "current_host": "algo-2",
  "current_instance_type": "local",
  "current_group_name": "homogeneousCluster",
  "hosts": [
    "algo-1",
    "algo-2"
  ],
  "instance_groups": [
    {
      "instance_group_name": "homogeneousCluster",
      "instance_type": "local",
      "hosts": [
        "algo-1",
        "algo-2"
      ]
    }
  ],
  "network_interface_name": "eth0"
}
"""

INPUT_DATA = """\
{
  "train": {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None"
  },
  "validation": {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None"
  }
}
"""

HYPERPARAMETERS = """\
{
  "learning_rate": "3e-05",
  "model_name_or_path": "123",
  "name": "\\"bert\\""
}
"""


def test_create_host_folder_writes_sagemakers_files(tmp_path: Path) -> None:
    data = files(
        tmp_path / "data", "train/a.json", "validation.json", "my code/main.py", "my code/__pycache__/main.pyc"
    )
    channels = {"validation": data / "validation.json", "train": data / "train"}
    config = opt_ml.HostConfig(
        host="algo-2",
        hosts=opt_ml.host_names(2),
        instance_type="local",
        hyperparameters={"name": '"bert"', "model_name_or_path": "123", "learning_rate": "3e-05"},
        channels=channels,
        code=data / "my code",
    )
    opt_ml.create_host_folder(tmp_path / "ml", config)
    written = {path.relative_to(tmp_path / "ml").as_posix(): path for path in (tmp_path / "ml").rglob("*")}
    assert sorted(written) == [
        "checkpoints",
        "code",
        "code/main.py",
        "input",
        "input/config",
        "input/config/hyperparameters.json",
        "input/config/inputdataconfig.json",
        "input/config/resourceconfig.json",
        "input/data",
        "input/data/train",
        "input/data/validation",
        "input/data/validation/validation.json",
        "model",
        "output",
        "output/data",
    ]
    assert written["input/config/hyperparameters.json"].read_text() == HYPERPARAMETERS
    assert written["input/config/resourceconfig.json"].read_text() == RESOURCES_OF_ALGO_2
    assert written["input/config/inputdataconfig.json"].read_text() == INPUT_DATA
    assert opt_ml.channel_mounts(channels) == {
        "/opt/ml/input/data/validation/validation.json": data / "validation.json",
        "/opt/ml/input/data/train": data / "train",
    }


@pytest.mark.parametrize(
    ("count", "names"),
    [
        pytest.param(1, ["algo-1"], id="one"),
        pytest.param(11, ["algo-1", "algo-10", "algo-11", *(f"algo-{n}" for n in range(2, 10))], id="sorted-as-text"),
    ],
)
def test_host_names(count: int, names: list[str]) -> None:
    assert opt_ml.host_names(count) == names


@pytest.mark.parametrize(
    ("existing", "data", "channels"),
    [
        pytest.param(["a.json"], ".", {"train": "."}, id="folder-of-files"),
        pytest.param(["a.json"], "a.json", {"train": "a.json"}, id="one-file"),
        pytest.param(
            ["train/a.json", "validation/b.json", "notes.txt", ".git/config"],
            ".",
            {"train": "train", "validation": "validation"},
            id="folder-of-channels",
        ),
        pytest.param(["training/a", "val/b"], ".", {"training": "training", "val": "val"}, id="other-names"),
        pytest.param(["train/a", "faces/b"], ".", {"train": "train", "faces": "faces"}, id="channel-of-another-name"),
        pytest.param(["2024/a.json", "2025/b.json"], ".", {"train": "."}, id="folders-without-channel-names"),
    ],
)
def test_find_channels(tmp_path: Path, existing: list[str], data: str, channels: dict[str, str]) -> None:
    files(tmp_path, *existing)
    assert opt_ml.find_channels(tmp_path / data) == {name: tmp_path / path for name, path in channels.items()}


@pytest.mark.parametrize(
    ("existing", "data", "message"),
    [
        pytest.param([], "nowhere", "there is no file or folder ", id="missing"),
        pytest.param([], ".", "The channel train is empty", id="empty"),
        pytest.param([".hidden"], ".", "The channel train is empty", id="hidden-files-only"),
        pytest.param(["train/a.json", "validation/.a"], ".", "The channel validation is empty", id="second-one"),
    ],
)
def test_error_for_missing_or_empty_data(tmp_path: Path, existing: list[str], data: str, message: str) -> None:
    files(tmp_path, *existing)
    with pytest.raises(UserError, match=message):
        opt_ml.find_channels(tmp_path / data)


@pytest.mark.parametrize(
    ("hyperparameters", "qa_model", "has_code", "completed"),
    [
        pytest.param({"a": "1"}, False, False, {"a": "1"}, id="nothing-to-add"),
        pytest.param({}, True, False, {"model_name_or_path": "/opt/ml/input/data/model"}, id="model"),
        pytest.param({"model_name_or_path": "bert"}, True, False, {"model_name_or_path": "bert"}, id="model-given"),
        pytest.param({}, False, True, {"sagemaker_submit_directory": "/opt/ml/code"}, id="code"),
    ],
)
def test_add_paths_completes_hyperparameters(
    hyperparameters: dict[str, str], qa_model: bool, has_code: bool, completed: dict[str, str]
) -> None:
    assert opt_ml.add_paths(hyperparameters, qa_model=qa_model, has_code=has_code) == completed
