"""Models to load, and an endpoint that loads them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.serve.models.endpoint import Endpoint
from tests.unit.small_models import add_graph, save_tiny_model


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("SAGEMAKER_MULTI_MODEL", "true")
    (tmp_path / "models").mkdir()
    application = Endpoint(tmp_path)
    with application.client:  # one event loop for all requests
        yield application
    application.models.close()


@pytest.fixture(scope="session")
def other_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other") / "model"
    save_tiny_model(folder, seed=1)
    add_graph(folder)
    return folder
