"""Small models, and clients of services with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from berth.serve.http.app import create_app
from berth.serve.limits import RequestLimits
from tests.unit.serve.in_process import ready_service, stop_all
from tests.unit.small_models import add_graph, save_minilm, save_tiny_model


@pytest.fixture(scope="module", autouse=True)
def no_worker_is_left() -> Iterator[None]:
    yield
    stop_all()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    save_tiny_model(folder)
    add_graph(folder)
    return folder


@pytest.fixture(scope="session")
def minilm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minilm") / "model"
    save_minilm(folder)
    add_graph(folder)
    return folder


@pytest.fixture(scope="module")
def client(minilm_model: Path) -> TestClient:
    return TestClient(create_app(ready_service(minilm_model, RequestLimits(payload=100_000))))


@pytest.fixture(scope="module")
def tiny_client(tiny_model: Path) -> TestClient:
    return TestClient(create_app(ready_service(tiny_model)))
