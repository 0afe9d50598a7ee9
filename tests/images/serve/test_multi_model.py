"""A multi-model container, with the requests that SageMaker sends."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from berth.runtime.engines import convert
from berth.runtime.engines.graph import FOLDER
from berth.runtime.engines.model_folder import find
from tests.doubles.package_index import wheel
from tests.files import write_files
from tests.images.serve.conftest import Serve
from tests.images.serve.served import Served
from tests.unit.small_models import save_tiny_model

QUESTION = {"question": "What is used?", "context": "This model is used with sagemaker for inference."}
LOADS = 25
MULTI = {"SAGEMAKER_MULTI_MODEL": "true"}


class Models:
    """SageMaker's requests to a multi-model container."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def ask(self, method: str, path: str, value: Any = None) -> tuple[int, Any]:
        status, body, _ = self.served.exchange(method, path, None if value is None else json.dumps(value).encode())
        return status, json.loads(body)

    def load(self, name: str, folder: str = "") -> int:
        status, _ = self.ask("POST", "/models", {"model_name": name, "url": f"/opt/ml/models/{folder or name}/model"})
        return status

    def answer(self, name: str) -> Any:
        return self.ask("POST", f"/models/{name}/invoke", QUESTION)

    def unload(self, name: str) -> int:
        return self.ask("DELETE", f"/models/{name}")[0]


@pytest.fixture(scope="module")
def folder(model_with_graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/opt/ml/models as SageMaker fills it."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(model_with_graph, folder / "minilm/model")
    for seed in (0, 1):
        tiny = folder / f"tiny{seed}/model"
        save_tiny_model(tiny, seed)
        convert.convert(find(tiny), tiny / FOLDER)
    handler = "def model_fn(model_dir):\n    return lambda data: data\n"
    return write_files(folder, {"code/model/code/inference.py": handler})


@pytest.fixture(scope="module")
def models(serve_model: Serve, folder: Path) -> Models:
    return Models(serve_model(folder, MULTI, at="/opt/ml/models", mem_limit="1500m", memswap_limit="1500m"))


def test_two_models_answer_differently(models: Models) -> None:
    assert models.ask("GET", "/ping") == (200, {"status": "ready", "models": 0})
    assert [models.load("tiny0"), models.load("tiny1"), models.load("code")] == [200, 200, 200]
    (first_status, first), (second_status, second) = models.answer("tiny0"), models.answer("tiny1")
    assert (first_status, second_status) == (200, 200)
    assert first["score"] != second["score"]
    assert models.answer("code") == (200, QUESTION)
    assert models.ask("GET", "/models")[1]["models"] == [
        {"modelName": name, "modelUrl": f"/opt/ml/models/{name}/model"} for name in ("code", "tiny0", "tiny1")
    ]
    assert models.load("tiny0") == 409
    assert [models.unload(name) for name in ("tiny0", "tiny1", "code", "code")] == [200, 200, 200, 404]
    assert models.answer("tiny0")[0] == 404


@pytest.mark.nightly
def test_unloading_frees_memory_after_one_and_after_many_models(models: Models) -> None:
    before = models.served.megabytes()
    assert models.load("minilm") == 200
    assert models.answer("minilm")[0] == 200
    taken = models.served.megabytes() - before
    assert taken > 200
    assert models.unload("minilm") == 200
    after_unloading = models.served.megabytes()
    assert after_unloading - before < 0.1 * taken, "unloading must free nine tenths of the model's memory"
    for number in range(LOADS):
        name = f"tiny{number % 2}"
        assert models.load(name) == 200
        assert models.answer(name)[0] == 200
        assert models.unload(name) == 200
    assert models.served.megabytes() < 1.1 * after_unloading
    assert models.served.workers() == []


def test_model_that_does_not_fit_gets_507_and_loaded_models_stay(models: Models) -> None:
    loaded = []
    for number in range(9):
        status, body = models.ask(
            "POST", "/models", {"model_name": f"copy{number}", "url": "/opt/ml/models/minilm/model"}
        )
        if status != 200:
            break
        loaded.append(f"copy{number}")
    assert (status, body["error_type"]) == (507, "no_memory")
    assert len(loaded) == 3  # of about 480 MB each
    assert [models.answer(name)[0] for name in loaded] == [200] * len(loaded)
    assert models.unload(loaded[0]) == 200
    assert models.load("again", "minilm") == 200
    for name in [*loaded[1:], "again"]:
        assert models.unload(name) == 200


def test_stop_ends_the_container_before_it_is_killed(models: Models) -> None:
    assert models.load("tiny0") == 200
    models.served.container.stop(timeout=20)
    models.served.container.reload()
    assert models.served.container.attrs["State"]["ExitCode"] == 0


HANDLER = """
import model_package

def model_fn(model_dir):
    return lambda data: model_package.VALUE
"""


def test_each_model_has_its_packages_if_only_tmp_is_writable(serve_model: Serve, tmp_path: Path) -> None:
    """/tmp is small: a model whose packages do not fit gets 500, and unloading removes a model's packages."""
    values = {"one": "1", "two": "2", "large": f"'{'x' * 100_000_000}'"}
    for name, value in values.items():
        texts = {"inference.py": HANDLER, "requirements.txt": "--no-index\nmodel_package\n"}
        code = write_files(tmp_path / name / "model/code", texts)
        (code / "model_package-1.0-py3-none-any.whl").write_bytes(wheel("model_package", f"VALUE = {value}\n"))
    options = {"read_only": True, "tmpfs": {"/tmp": "size=64m"}, "mem_limit": "1500m"}
    models = Models(serve_model(tmp_path, MULTI, at="/opt/ml/models", **options))
    assert [models.load("one"), models.load("two")] == [200, 200]
    status, error = models.ask("POST", "/models", {"model_name": "large", "url": "/opt/ml/models/large/model"})
    assert (status, error["error_type"]) == (500, "broken_model")
    assert "requirements.txt" in error["error"]
    assert [models.answer(name) for name in ("one", "two")] == [(200, 1), (200, 2)]
    assert [models.unload(name) for name in ("one", "two")] == [200, 200]
    files = "import os; print(sum(len(names) for _, _, names in os.walk('/tmp')))"
    assert models.served.run(files).strip() == "0"


def test_image_has_the_multi_model_label(models: Models) -> None:
    labels = models.served.container.image.labels
    assert labels["com.amazonaws.sagemaker.capabilities.multi-models"] == "true"
