"""SDK v2's ways to deploy a job's model in local mode, all in one process of the SDK."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.common import labels
from tests.files import write_files
from tests.local_mode.moto_here import moto_server
from tests.local_mode.test_sdk_v2 import SERVE, TRAIN
from tests.unit.small_models import add_graph, save_tiny_model

# An endpoint must not import this program: that would train again.
PROGRAM = """
import os, shutil
print("the job's program runs")
shutil.copytree(os.environ["SM_CHANNEL_MODEL"], os.environ["SM_MODEL_DIR"], dirs_exist_ok=True)
"""
HANDLER = """
def predict_fn(data, model):
    if isinstance(data, list):
        return [[len(row)] for row in data]
    inputs = data["inputs"]
    return {"asked": inputs, "answered": model(inputs)}
"""
QUESTIONS = [
    {"question": "What is used?", "context": "This model is used with sagemaker, for inference."},
    {"question": "Who is Ben?", "context": "Anna is number 1, and Ben is number 2."},
]


@pytest.fixture
def s3() -> Iterator[str]:
    """The address of a double of S3."""
    with moto_server() as address:
        yield address


def test_each_deployment_of_sdk_v2_answers(fit: Any, tmp_path: Path, s3: str, client: docker.DockerClient) -> None:
    save_tiny_model(tmp_path / "data")
    add_graph(tmp_path / "data")
    write_files(tmp_path, {"src/train.py": PROGRAM, "handler/inference.py": HANDLER})
    result = fit(
        image_uri=TRAIN,
        entry_point=str(tmp_path / "src/train.py"),
        hyperparameters={},
        inputs={"model": str(tmp_path / "data")},
        serve_image_uri=SERVE,
        questions=QUESTIONS,
        ways=["Model", "estimator", "PyTorchModel", "HuggingFaceModel"],
        handler=str(tmp_path / "handler"),
        endpoint_url=s3,
    )
    assert "error" not in result, result["error"]
    assert result["estimator"] == result["Model"]
    ours = result["Model"]
    assert ours["list"] == ours["answers"]
    for question, answer, row in zip(QUESTIONS, ours["answers"], ours["rows"], strict=True):
        assert answer["answer"] == question["context"][answer["start"] : answer["end"]]
        assert row == [*(str(answer[name]) for name in ("score", "start", "end", "answer")), ""]
    for way in ("PyTorchModel", "HuggingFaceModel"):
        assert result[way] == {
            "answers": [
                {"asked": question, "answered": answer}
                for question, answer in zip(QUESTIONS, ours["answers"], strict=True)
            ],
            "list": {"asked": QUESTIONS, "answered": ours["list"]},
            "rows": [["2"], ["2"]],
        }
    assert result["log"].count("the job's program runs") == 1
    functions = "model_fn, input_fn, predict_fn, output_fn, transform_fn"
    assert result["log"].count(f"handler: the image's own; /opt/ml/code/train.py has none of {functions}") == 1
    still_there = client.containers.list(filters={"label": labels.KIT})
    folders = [each.labels.get("com.docker.compose.project.working_dir", "") for each in still_there]
    assert not [folder for folder in folders if folder.startswith(str(tmp_path))]
