"""A multi-model application without a socket, and folders with models for it."""

import shutil
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from berth.serve.http.app import create_app
from berth.serve.limits import RequestLimits
from berth.serve.models.folder import worker_environment
from berth.serve.models.registry import ModelRegistry
from berth.serve.workers.pool import WorkerPool
from berth.serve.workers.worker import WorkerSettings
from tests.doubles.package_index import wheel
from tests.files import write_files

ECHO = "def model_fn(model_dir):\n    return lambda data: data\n"


class Endpoint:
    """A multi-model application without a socket, with its client and its workers."""

    def __init__(self, root: Path, available: int = 10**12) -> None:
        self.root = root
        self.available = available
        self.pools: list[WorkerPool] = []
        self.models = ModelRegistry(
            self._start, [root / "models"], root / "scratch", RequestLimits(), lambda: self.available
        )
        self.client = TestClient(create_app(self.models))

    def _start(self, folder: Path, scratch: Path) -> WorkerPool:
        pool = WorkerPool([WorkerSettings(folder, 1, "cpu", worker_environment(scratch))], RequestLimits())
        self.pools.append(pool)
        pool.start()
        return pool

    def load(self, name: str, url: Path | str) -> Any:
        return self.client.post("/models", json={"model_name": name, "url": str(url)})

    def nothing_is_left(self) -> bool:
        """Whether no model is known, no memory reserved, and no file kept."""
        scratch = self.root / "scratch"
        return not self.models._models and not (scratch.exists() and any(scratch.iterdir()))

    def names(self, **query: str) -> list[str]:
        return [each["modelName"] for each in self.client.get("/models", params=query).json()["models"]]


def add_wheel(folder: Path, name: str, value: int) -> None:
    """Put a wheel of a module with `VALUE = value` next to the model's code."""
    (folder / "code" / f"{name}-1.0-py3-none-any.whl").write_bytes(wheel(name, f"VALUE = {value}\n"))


def add_model(endpoint: Endpoint, name: str, source: Path | None = None, **files: str) -> Path:
    """Write a model's folder: a copy of `source`, and `files` in its code/ (`inference_py` is inference.py)."""
    folder = endpoint.root / "models" / name / "model"
    folder.mkdir(parents=True)
    if source:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return write_files(folder, {f"code/{name.replace('_', '.')}": text for name, text in files.items()})
