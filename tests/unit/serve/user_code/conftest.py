"""Models with a handler, and clients of services that run it in a worker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from berth.serve.http.app import create_app
from berth.serve.limits import RequestLimits
from tests.unit.serve.in_process import ready_service, stop_all

Model = Callable[..., Path]
Serve = Callable[..., TestClient]


@pytest.fixture(autouse=True)
def own_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers keep a handler's files below TMPDIR; each test has its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    stop_all()


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Returns a function that writes files into the code/ of a model's folder, and returns the folder."""

    def write(**files: str) -> Path:
        folder = tmp_path / "opt/model"
        (folder / "code").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / "code" / name.replace("_txt", ".txt").replace("_py", ".py")).write_text(text, "utf-8")
        return folder

    return write


@pytest.fixture
def serve(model: Model) -> Serve:
    """Returns a function that starts a service with that handler, limits and variables, and returns its client."""

    def start(handler: str, limits: RequestLimits | None = None, **environment: str) -> TestClient:
        return TestClient(create_app(ready_service(model(inference_py=handler), limits, **environment)))

    return start
