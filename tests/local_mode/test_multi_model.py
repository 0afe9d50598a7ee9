"""SDK v2's MultiDataModel: its requests to AWS, and its predictor's requests, which a multi-model container answers."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.images.serve.served import Served
from tests.local_mode.test_sdk_v2 import SERVE
from tests.unit.small_models import add_graph, save_tiny_model

PROGRAM = Path(__file__).with_name("multi_model.py")
QUESTION = {"question": "What is used?", "context": "This model is used with sagemaker for inference."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The container's /opt/ml/models, which SageMaker would fill."""
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def served(client: docker.DockerClient, folder: Path) -> Iterator[Served]:
    container = client.containers.run(
        SERVE,
        detach=True,
        volumes=[f"{folder}:/opt/ml/models:ro"],
        environment={"SAGEMAKER_MULTI_MODEL": "true", "BERTH_LOG_FORMAT": "json"},
        ports={"8080/tcp": ("127.0.0.1", None)},
        labels={"berth.test": "1"},
    )
    try:
        served = Served(container)
        served.wait_until_ready()
        yield served
    finally:
        print(container.logs().decode())
        container.remove(force=True)


def test_multi_data_model_is_served(run_sdk: Any, tmp_path: Path, folder: Path, served: Served) -> None:
    archives = {}
    for seed in (0, 1):
        model, archive = tmp_path / f"seed{seed}", tmp_path / f"seed{seed}.tar.gz"
        save_tiny_model(model, seed)
        add_graph(model)
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(model, ".")
        archives[f"team/{archive.name}"] = str(archive)
    job = {
        "image_uri": SERVE,
        "models": archives,
        "questions": [QUESTION, {"inputs": QUESTION, "parameters": {"top_k": 2}}],
        "folder": str(folder),
        "url": f"http://127.0.0.1:{served.port}",
    }
    result, _ = run_sdk(PROGRAM, json.dumps(job))

    container = result["requests"]["CreateModel"]["PrimaryContainer"]
    assert (container["Image"], container["Mode"]) == (SERVE, "MultiModel")
    assert container["ModelDataUrl"] == "s3://bucket/models/"
    assert result["listed"] == list(archives)
    first, second = result["answers"].values()
    for best, several in (first, second):
        assert QUESTION["context"][best["start"] : best["end"]] == best["answer"]
        assert len(several) == 2
        assert several[0]["answer"] == best["answer"]
    assert first[0]["score"] != second[0]["score"]
    assert '"target_model": "team/seed0.tar.gz"' in served.log()
