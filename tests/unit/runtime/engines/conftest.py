"""Small models for the engines."""

import shutil
from pathlib import Path

import pytest

from tests.unit.small_models import add_graph, save_minilm, save_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    save_tiny_model(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model_with_graph(tiny_model: Path) -> Path:
    folder = Path(shutil.copytree(tiny_model, tiny_model.with_name("with graph")))
    add_graph(folder)
    return folder


@pytest.fixture(scope="session")
def minilm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minilm") / "model"
    save_minilm(folder)
    return folder
