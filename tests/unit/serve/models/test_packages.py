"""Packages of models that share a container: each model has its own."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from berth.runtime.engines.model_folder import ModelFilesError
from berth.runtime.requirements import RequirementsError
from berth.serve.user_code.environment import interpreter_for
from berth.serve.user_code.find import UserCode
from tests.unit.serve.models.endpoint import Endpoint, add_model, add_wheel

pytestmark = pytest.mark.slow

REQUIREMENTS = "--no-index --find-links .\nof_the_model\n"
REPORTS = """
import os, tempfile
import of_the_model

def model_fn(model_dir):
    places = [tempfile.gettempdir(), os.environ["HF_MODULES_CACHE"], os.environ["BERTH_GRAPH_DIR"]]
    return lambda data: {"value": of_the_model.VALUE, "places": places}
"""


def test_two_models_can_have_different_versions_of_a_package(endpoint: Endpoint) -> None:
    """The packages have the same name and version; only their folders differ."""
    names = ("one", "two")
    for value, name in enumerate(names):
        add_wheel(add_model(endpoint, name, inference_py=REPORTS, requirements_txt=REQUIREMENTS), "of_the_model", value)
    for name in names:
        assert endpoint.load(name, endpoint.root / f"models/{name}/model").status_code == 200
    found = [endpoint.client.post(f"/models/{name}/invoke", json=1).json() for name in names]
    assert [each["value"] for each in found] == [0, 1]
    assert not {*found[0]["places"]} & {*found[1]["places"]}
    scratch = endpoint.root / "scratch"
    assert all(Path(place).is_relative_to(scratch) for each in found for place in each["places"])

    # Another package in the same folder with the same requirements.txt, as after an update of the model.
    folder = endpoint.root / "models/one/model"
    assert endpoint.client.delete("/models/one").status_code == 200
    add_wheel(folder, "of_the_model", 5)
    assert endpoint.load("one", folder).status_code == 200
    assert endpoint.client.post("/models/one/invoke", json=1).json()["value"] == 5
    for name in names:
        assert endpoint.client.delete(f"/models/{name}").status_code == 200
    assert endpoint.nothing_is_left()


@pytest.mark.parametrize(
    "error",
    [
        RequirementsError("Could not install packages due to an OSError: [Errno 28] No space left on device; …"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    ],
    ids=["of-pip", "of-berth"],
)
def test_full_disk_during_installation_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    (tmp_path / "requirements.txt").write_text("x")
    monkeypatch.setattr("berth.runtime.requirements.install", fail)
    with pytest.raises(ModelFilesError, match="No space left on device") as raised:
        interpreter_for(UserCode(tmp_path / "inference.py", frozenset()), tmp_path / "scratch", print)
    assert str(tmp_path) in str(raised.value)
