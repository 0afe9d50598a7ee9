"""What the tests of the routes share: a service whose model is ready, a question, what a response says."""

import threading
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from berth.serve.handler import QuestionAnsweringHandler
from berth.serve.limits import RequestLimits
from berth.serve.service import Service

ONE = {
    "question": "What is used for inference?",
    "context": "My Name is Philipp and I live in Nuremberg. This model is used with sagemaker for inference.",
}


def ready_service(model_dir: Path, limits: RequestLimits | None = None) -> Service:
    service = Service(QuestionAnsweringHandler(limits), model_dir)
    loaded = threading.Event()
    service.start(loaded.set)
    for _ in range(600):
        if service.failure or service.ready:
            break
        loaded.wait(0.05)
    assert service.failure is None
    return service


def ask(client: TestClient, inputs: Any, **parameters: Any) -> Any:
    body = {"inputs": inputs} | ({"parameters": parameters} if parameters else {})
    response = client.post("/invocations", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def error_of(response: Any) -> tuple[int, str, str]:
    body = response.json()
    assert list(body) == ["error", "error_type"]
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["error_type"], body["error"]


def error_for(client: TestClient, inputs: Any, **parameters: Any) -> tuple[int, str, str]:
    return error_of(client.post("/invocations", json={"inputs": inputs, "parameters": parameters}))
