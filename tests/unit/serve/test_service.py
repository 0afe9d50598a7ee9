"""The model's thread when a GPU is lost under it: no test machine has one, so the handler says what torch would."""

import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from berth.serve.app import create_app
from berth.serve.handler import WARM_UP, QuestionAnsweringHandler
from berth.serve.request import Parameters, Request
from berth.serve.service import Service, is_cuda_error

ACCESS = "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in https://docs…"
SENTENCE = (
    "the model can't use its GPU any more (CUDA error: an illegal memory access was encountered): restart the "
    "container, and look at the host's dmesg"
)
BODY = {"inputs": {"question": "Where?", "context": "In Tacoma."}}


class Failing(QuestionAnsweringHandler):
    """Answers until `fails` holds what the GPU says: of the next prediction, or, where it is `lost`, of every one."""

    fails = ""
    lost = False
    asked = 0
    going_on: threading.Event | None = None

    def predict(self, *arguments: Any) -> Any:
        self.asked += 1
        if self.going_on is not None:
            assert self.going_on.wait(30)
        if self.fails:
            said = self.fails
            self.fails = said if self.lost else ""
            raise RuntimeError(said)
        return super().predict(*arguments)


@pytest.fixture
def served(tiny_model: Path) -> tuple[Failing, Service, TestClient, threading.Event]:
    handler, told = Failing(), threading.Event()
    service = Service(handler, tiny_model)
    service.start(told.set)
    while not service.ready:
        assert service.failure is None
        told.wait(0.05)
    return handler, service, TestClient(create_app(service)), told


def test_a_lost_gpu_ends_the_service(served: tuple[Failing, Service, TestClient, threading.Event]) -> None:
    handler, service, client, told = served
    assert client.get("/ping").status_code == 200
    handler.fails, handler.lost = ACCESS, True
    assert client.post("/invocations", json=BODY).status_code == 500
    for response in (client.get("/ping"), client.post("/invocations", json=BODY)):
        assert (response.status_code, response.json()) == (503, {"error": SENTENCE, "error_type": "not_ready"})
    assert told.is_set()  # by which the server ends after its grace, as for a model that it can't load
    assert not service.ready


def test_what_was_queued_is_refused_and_not_tried(served: tuple[Failing, Service, TestClient, threading.Event]) -> None:
    handler, service, _, _ = served
    handler.fails, handler.lost, handler.going_on = ACCESS, True, threading.Event()
    prepared = service.prepare(Request((WARM_UP,), single=True, parameters=Parameters()))
    first, second = (service.submit(prepared) for _ in range(2))
    asked = handler.asked
    handler.going_on.set()
    assert str(first.exception(30)) == ACCESS
    assert str(second.exception(30)) == SENTENCE
    assert handler.asked <= asked + 2  # the first request and the warm-up question after it


@pytest.mark.parametrize("said", ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling …"])
def test_an_error_of_one_request_is_not_the_end(
    served: tuple[Failing, Service, TestClient, threading.Event], said: str
) -> None:
    handler, _, client, told = served
    handler.fails = said
    assert client.post("/invocations", json=BODY).status_code == 500
    assert client.get("/ping").status_code == 200
    assert client.post("/invocations", json=BODY).status_code == 200
    assert not told.is_set()


def test_errors_of_cuda() -> None:
    accelerator = type("AcceleratorError", (RuntimeError,), {})
    assert is_cuda_error(accelerator("uncorrectable ECC error encountered"))
    assert is_cuda_error(RuntimeError(ACCESS))
    assert is_cuda_error(RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"))
    assert not is_cuda_error(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert not is_cuda_error(ValueError("a bad question"))
