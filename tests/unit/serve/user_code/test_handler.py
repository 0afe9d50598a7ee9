"""A user's handler in a worker: which of its functions are called with what, and the errors that clients get."""

import io
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from berth.serve.limits import RequestLimits
from tests.unit.serve.in_process import ONE, error_of
from tests.unit.serve.user_code.test_defaults import npy

NPY = "application/x-npy"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


def test_predict_fn_without_model_fn_gets_our_pipeline(
    tiny_model: Path, model: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(tiny_model, model(), dirs_exist_ok=True)
    caplog.set_level("INFO", "berth.serve.models.service")
    client = serve(
        """
def predict_fn(data, model):
    one = model(question=data["q"], context=data["c"])
    assert model({"question": data["q"], "context": data["c"]}) == one
    assert model([{"question": data["q"], "context": data["c"]}]) == [one]
    assert model(question=[data["q"]] * 2, context=data["c"]) == [one, one]
    return model(question=data["q"], context=data["c"], top_k=2)
"""
    )
    lines = [record.getMessage() for record in caplog.records if record.name == "berth.serve.models.service"]
    assert [line.partition(": ")[0] for line in lines] == ["model", "engine", "handler", "ready"]
    assert lines[0] == f"model: {model()} (model.safetensors, tokenizer.json)"
    assert "OpenVINO" in lines[1]
    first, second = client.post("/invocations", json={"q": ONE["question"], "c": ONE["context"]}).json()
    assert first["score"] >= second["score"]
    assert first["answer"] == ONE["context"][first["start"] : first["end"]]
    refused = client.post("/invocations", json={"q": "", "c": ONE["context"]})
    assert error_of(refused) == (400, "bad_request", "`inputs.question` is empty: send some text")


def test_handlers_wrong_call_of_our_model_gets_500(tiny_model: Path, model: Any, serve: Any) -> None:
    shutil.copytree(tiny_model, model(), dirs_exist_ok=True)
    client = serve("def predict_fn(data, model):\n    return model(data) if 'inputs' in data else model(**data)\n")
    for body, fact in (
        ({**ONE, "max_answer_length": 3}, "unknown keyword `max_answer_length`: did you"),
        ({"inputs": ONE}, "takes the value of `inputs`, not the whole body: model(data['inputs'])"),
    ):
        status, kind, sentence = error_of(client.post("/invocations", json=body))
        assert (status, kind) == (500, "handler_failed")
        assert fact in sentence
        assert "inference.py:2" in sentence


def test_clients_wrong_parameter_gets_400_through_a_handler(tiny_model: Path, model: Any, serve: Any) -> None:
    """The handler has only model_fn, so inputs and parameters reach the model unchanged."""
    shutil.copytree(tiny_model, model(), dirs_exist_ok=True)
    client = serve("from berth.serve.pipeline import load_pipeline\n\ndef model_fn(d):\n    return load_pipeline(d)\n")
    body = {"inputs": ONE, "parameters": {"max_answer_length": 3}}
    status, kind, sentence = error_of(client.post("/invocations", json=body))
    assert (status, kind) == (400, "bad_request")
    assert "did you mean `max_answer_len`?" in sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"inputs": "good"}\n{"inputs": "bad"}\n', "application/jsonlines"),
        ("good\nbad\n", "text/csv"),
        ("inputs\ngood\nbad\n", "text/csv"),
        ('{"inputs": ["good", "bad"]}', "application/json"),
    ],
    ids=["json lines", "a column", "a named column", "json"],
)
def test_pipeline_gets_the_same_texts_from_every_content_type(serve: Any, body: str, content_type: str) -> None:
    client = serve("def model_fn(model_dir):\n    return lambda texts: [text.upper() for text in texts]\n")
    headers = {"content-type": content_type, "accept": "application/json"}
    assert client.post("/invocations", content=body, headers=headers).json() == ["GOOD", "BAD"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "handler",
    [
        "from berth.serve.pipeline import load_pipeline\n\ndef model_fn(d):\n    return load_pipeline(d)\n",
        "def predict_fn(data, model):\n    return model(data['inputs'])\n",
    ],
    ids=["imported", "default"],
)
def test_load_pipeline_has_the_servers_limits(tiny_model: Path, model: Any, serve: Any, handler: str) -> None:
    shutil.copytree(tiny_model, model(), dirs_exist_ok=True)
    client = serve(handler, BERTH_MAX_REQUEST_TOKENS="512")
    answer = client.post("/invocations", json={"inputs": ONE}).json()
    assert answer["answer"] == ONE["context"][answer["start"] : answer["end"]]
    long = {"inputs": {"question": "q", "context": "x " * 2000}}
    assert error_of(client.post("/invocations", json=long))[:2] == (413, "too_large")


def test_hugging_faces_decoder_encoder_can_be_imported(serve: Any) -> None:
    client = serve(
        """
from sagemaker_huggingface_inference_toolkit import decoder_encoder

def model_fn(model_dir):
    return None

def input_fn(body, content_type):
    return decoder_encoder.decode(body, content_type)

def predict_fn(data, model):
    return [data]

def output_fn(prediction, accept):
    return decoder_encoder.encode(prediction, accept)
"""
    )
    assert client.post("/invocations", json={"inputs": "ä"}).json() == [{"inputs": "ä"}]
    csv = {"content-type": "text/csv", "accept": "application/json"}
    rows = client.post("/invocations", content="inputs\na\nb\n", headers=csv)
    assert rows.json() == [{"inputs": ["a", "b"]}]
    assert error_of(client.post("/invocations", content=b"x", headers={"content-type": "image/png"}))[0] == 415


@pytest.mark.slow
def test_input_fn_and_output_fn_around_our_model(tiny_model: Path, model: Any, serve: Any) -> None:
    shutil.copytree(tiny_model, model(), dirs_exist_ok=True)
    client = serve(
        """
def input_fn(data, content_type):
    question, context = data.decode().split("|") if content_type == "text/x-mine" else (None, None)
    return {"inputs": {"question": question, "context": context}, "parameters": {"top_k": 2}}

def output_fn(prediction, accept):
    return "; ".join(each["answer"] for each in prediction), "text/plain"
"""
    )
    body = f"{ONE['question']}|{ONE['context']}"
    response = client.post("/invocations", content=body, headers={"content-type": "text/x-mine"})
    assert (response.status_code, response.headers["content-type"]) == (200, "text/plain")
    assert all(part in ONE["context"] for part in response.text.split("; "))
    assert response.text.count("; ") == 1


def test_context_is_reset_for_each_request(serve: Any) -> None:
    client = serve(
        f"""
def model_fn(model_dir, context):
    return context.system_properties["model_dir"] == model_dir

def predict_fn(data, model, context):
    header = context.get_request_header(0, "{ATTRIBUTES}")
    context.set_response_header(0, "{ATTRIBUTES}", f"seen {{header}}")
    context.set_response_header(0, "X-Mine", data)
    if data == "teapot":
        context.set_response_status(418, "short and stout")
    return [model, context.get_all_request_header(0).get("x-one")]
"""
    )
    for one in ("first", "second"):
        response = client.post("/invocations", json=one, headers={ATTRIBUTES: one, "X-One": one})
        assert response.json() == [True, one]
        assert response.headers[ATTRIBUTES] == f"seen {one}"
        assert response.headers["x-mine"] == one
    assert client.post("/invocations", json="teapot").status_code == 418
    assert client.post("/invocations", json="a\nb").headers.get("x-mine") is None


@pytest.mark.slow
def test_custom_attributes_are_returned_unchanged(serve: Any, tiny_client: TestClient) -> None:
    own = serve("def model_fn(model_dir):\n    return len\n")
    assert own.post("/invocations", json=[1, 2], headers={ATTRIBUTES: "trace=1"}).headers[ATTRIBUTES] == "trace=1"
    ours = tiny_client.post("/invocations", json={"inputs": ONE}, headers={ATTRIBUTES: "trace=2"})
    assert ours.headers[ATTRIBUTES] == "trace=2"
    assert ATTRIBUTES not in tiny_client.post("/invocations", json={"inputs": ONE}).headers


ECHO = "def model_fn(model_dir):\n    return lambda data: data\n"


def test_default_functions_read_and_write_each_type(serve: Any) -> None:
    client = serve(ECHO)

    def answer(body: Any, content_type: str, accept: str) -> Any:
        return client.post("/invocations", content=body, headers={"content-type": content_type, "accept": accept})

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert answer(npy(array), NPY, "application/json").json() == array.tolist()
    assert np.array_equal(np.load(io.BytesIO(answer(npy(array), NPY, NPY).content)), array)
    assert answer(npy(array), NPY, "text/csv").text == "0.0,1.0,2.0\r\n3.0,4.0,5.0\r\n"
    assert answer('{"a": 1}\n{"a": 2}\n', "application/jsonlines", "text/csv").text == "a\r\n1\r\n2\r\n"
    assert answer("[1, [2]]", "application/json", "application/jsonlines").text == "1\n[2]\n"
    assert answer("a,b\n1,2\n", "text/csv", "*/*").json() == [["a", "b"], ["1", "2"]]
    row = {"question": "q", "context": "c"}
    assert answer("question,context\nq,c\n", "text/csv", "*/*").json() == [row]
    assert error_of(answer(b"", "image/png", "*/*")) == (
        415,
        "unsupported_media_type",
        "Content-Type `image/png` can't be read: send one of application/json, application/jsonlines, text/csv, "
        "application/x-npy, or write an input_fn that reads it",
    )
    assert error_of(answer("[1]", "application/json", "image/png"))[:2] == (406, "not_acceptable")
    assert error_of(answer('{"a": "b"}', "application/json", NPY))[:2] == (406, "not_acceptable")


FAULTS = """
import os, sys, time
from sagemaker_inference.errors import GenericInferenceToolkitError

class Mute(Exception):
    def __str__(self):
        raise ValueError

def model_fn(model_dir):
    return None

def input_fn(data, content_type):
    if data == '"input"':
        raise ValueError("of input\\nand a second line")
    return data.strip('"')

def predict_fn(data, model):
    if data == "predict":
        {}["a key"]
    if data == "exit":
        sys.exit(3)
    if data == "die":
        os._exit(9)
    if data == "hang":
        time.sleep(600)
    if data == "refuse":
        raise GenericInferenceToolkitError(422, "too few words")
    if data == "print":
        for _ in range(200):
            print("x" * 100_000)
    if data == "nan":
        return float("nan")
    if data == "object":
        return object()
    if data == "mute":
        raise Mute
    return data

def output_fn(prediction, accept):
    if prediction == "output":
        raise RuntimeError
    if prediction == "password":
        raise RuntimeError("password=hunter2 is wrong")
    return prediction if prediction != "dict" else {"made": "by output_fn"}
"""


@pytest.mark.slow
def test_endpoint_survives_every_fault_of_a_handler(serve: Any, capfd: pytest.CaptureFixture[str]) -> None:
    client = serve(FAULTS, RequestLimits(seconds=4.0))

    def error(body: str) -> tuple[int, str, str]:
        return error_of(client.post("/invocations", json=body))

    for body, reason in {
        "input": "input_fn of the model's inference.py raised ValueError: of input (raised at inference.py:14)",
        "predict": "predict_fn of the model's inference.py raised KeyError: 'a key' (raised at inference.py:19)",
        "exit": "predict_fn of the model's inference.py raised SystemExit: 3 (raised at inference.py:21)",
        "output": "output_fn of the model's inference.py raised RuntimeError (raised at inference.py:41)",
        "password": "output_fn of the model's inference.py raised RuntimeError: password=*** is wrong (raised at "
        "inference.py:43)",
        "mute": "predict_fn of the model's inference.py raised Mute: its text can't be read: ValueError (raised at "
        "inference.py:36)",
        "object": "the model's inference.py failed (TypeError: a value of the type object can't be written as JSON: "
        "return lists, numbers, strings or arrays)",
        "nan": "the model's inference.py failed (ValueError: the prediction can't be written as JSON (Out of range "
        "float values are not JSON compliant))",
    }.items():
        status, kind, sentence = error(body)
        assert (status, kind) == (500, "handler_failed")
        identifier, _, remedy = sentence.removeprefix(f"{reason}: the log has the traceback under the id ").partition(
            "; "
        )
        assert len(identifier) == 8, sentence
        assert bool(remedy) == (body == "exit")
        assert f"id {identifier}" in capfd.readouterr().err
    assert error("refuse") == (422, "handler_failed", "too few words")
    assert error("die") == (
        500,
        "given_up",
        "the worker has died (exit code 9) over this request: it is given up",
    )
    assert error("hang")[:2] == (504, "too_late")
    deadline = time.monotonic() + 30
    while client.post("/invocations", json="well").status_code != 200:
        assert time.monotonic() < deadline
    assert client.post("/invocations", json="print").status_code == 200
    assert client.post("/invocations", json="well").text == "well"
    assert client.post("/invocations", json="dict").json() == {"made": "by output_fn"}


@pytest.mark.slow
def test_handler_gets_one_request_at_a_time_and_ping_answers(serve: Any) -> None:
    client = serve(ECHO + "\nimport time\n\ndef predict_fn(data, model):\n    time.sleep(data)\n    return data\n")
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(client.post("/invocations", json=0.25).status_code)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    assert client.get("/ping").status_code == 200
    assert not statuses, "/ping waited for a request"
    for thread in threads:
        thread.join()
    assert statuses == [200] * 4
    assert time.monotonic() - began >= 1.0


def test_inputs_and_parameters_are_passed_to_a_callable_model(serve: Any) -> None:
    client = serve("def model_fn(model_dir):\n    return lambda inputs, **parameters: [inputs, parameters]\n")
    body = {"inputs": "text", "parameters": {"top_k": 3}}
    assert client.post("/invocations", json=body).json() == ["text", {"top_k": 3}]
    assert client.post("/invocations", json={"a": 1}).json() == [{"a": 1}, {}]
    assert json.loads(client.post("/invocations", json=[1]).content) == [[1], {}]
