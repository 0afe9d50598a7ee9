"""Models that bring a handler, and clients of services that run it in a worker."""

import zipfile
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
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What workers keep for handlers is of one test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    stop_all()


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A folder with these files in code/."""

    def write(**files: str) -> Path:
        folder = tmp_path / "opt/model"
        (folder / "code").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / "code" / name.replace("_txt", ".txt").replace("_py", ".py")).write_text(text, "utf-8")
        return folder

    return write


@pytest.fixture
def serve(model: Model) -> Serve:
    """A client of a service whose model is that handler; `limits` and variables may follow."""

    def start(handler: str, limits: RequestLimits | None = None, **environment: str) -> TestClient:
        return TestClient(create_app(ready_service(model(inference_py=handler), limits, **environment)))

    return start


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[[Path, str], Path]:
    """Write a wheel of a package with `VALUE = 7` into a folder."""

    def write(folder: Path, name: str) -> Path:
        path = folder / f"{name}-1.0-py3-none-any.whl"
        metadata = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr(f"{name}.py", "VALUE = 7\n")
            packed.writestr(f"{metadata}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            packed.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            packed.writestr(f"{metadata}/RECORD", "")
        return path

    return write
