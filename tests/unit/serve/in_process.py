"""Helpers for tests of the application in process: services, requests, and errors in responses."""

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from berth.runtime.engines.choose import FOLDER_VARIABLE
from berth.serve.limits import RequestLimits
from berth.serve.models.service import Service
from berth.serve.workers.pool import WorkerPool
from berth.serve.workers.worker import WorkerSettings
from tests.waiting import until

ONE = {
    "question": "What is used for inference?",
    "context": "My Name is Philipp and I live in Nuremberg. This model is used with sagemaker for inference.",
}


_SERVICES: list[Service] = []
_DEADLINE = 120  # seconds; a worker that imports torch takes a minute on a busy machine


def service_of(model_dir: Path, limits: RequestLimits | None = None, **environment: str) -> Service:
    """A service with one worker for the model in that folder, whose graph is kept next to it; `stop_all` ends it."""
    limits = limits or RequestLimits()
    kept = {FOLDER_VARIABLE: str(model_dir.parent / f"graph of {model_dir.name}"), **environment}
    service = Service(WorkerPool([WorkerSettings(model_dir, 1, "cpu", kept)], limits), limits)
    _SERVICES.append(service)
    service.pool.start()
    return service


def ready_service(model_dir: Path, limits: RequestLimits | None = None, **environment: str) -> Service:
    service = service_of(model_dir, limits, **environment)
    service.start()
    until(lambda: service.failure or (not service.closed and service.pool.available), "a ready service", _DEADLINE)
    assert service.failure is None
    return service


def failure_of(model_dir: Path, **environment: str) -> str:
    """The error of a service whose model can't be served."""
    service = service_of(model_dir, **environment)
    service.start()
    until(lambda: service.failure, "the failure", _DEADLINE)
    assert service.failure is not None
    assert not service.pool.available
    return service.failure


def stop_all() -> None:
    while _SERVICES:
        _SERVICES.pop().pool.stop()


def ask(client: TestClient, inputs: Any, **parameters: Any) -> Any:
    body = {"inputs": inputs} | ({"parameters": parameters} if parameters else {})
    response = client.post("/invocations", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def error_of(response: Any) -> tuple[int, str, str]:
    body = response.json()
    assert list(body) == ["error", "error_type", *(["retry_after"] if "retry-after" in response.headers else [])]
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["error_type"], body["error"]


def error_for(client: TestClient, inputs: Any, **parameters: Any) -> tuple[int, str, str]:
    return error_of(client.post("/invocations", json={"inputs": inputs, "parameters": parameters}))
