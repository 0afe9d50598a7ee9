"""A handler gets requests as they came, and any answer that it gives can be sent."""

from typing import Any

from tests.unit.serve.in_process import error_of

SHOWS = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept, context):
    header = context.get_request_header(0, "Content-Type")
    return repr((body, content_type, header, accept)), "text/plain"
"""


def shown(client: Any, body: bytes, **headers: str) -> tuple[Any, ...]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.post("/invocations", content=body, headers={"accept": "", **named})
    assert response.status_code == 200, response.text
    found: tuple[Any, ...] = eval(response.text)
    return found


def test_a_handler_gets_body_type_and_accept_as_they_came(serve: Any) -> None:
    client = serve(SHOWS)
    for kind in (
        "multipart/form-data; boundary=XyZ",
        "audio/L16; rate=16000",
        "Image/PNG",
        "text/plain;charset=LATIN1",
    ):
        assert shown(client, b"\xff\x00", content_type=kind)[:3] == (b"\xff\x00", kind, kind)
    for kind in ("application/json", "text/csv", "application/json; charset=utf-8"):
        assert shown(client, '\ufeff"ä"'.encode(), content_type=kind)[:3] == ('"ä"', kind, kind)
        assert shown(client, b"", content_type=kind)[0] == ""
        assert shown(client, b"\xff", content_type=kind)[0] == b"\xff", "not UTF-8"
    for kind in ("application/json; charset=utf-16", "text/csv; charset=klingon", "application/jsonlines"):
        assert shown(client, b"1", content_type=kind)[:3] == (b"1", kind, kind)
    assert shown(client, b"1")[:3] == ("1", "application/json", None)


def test_handler_gets_one_accepted_type(serve: Any) -> None:
    client = serve(SHOWS, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="application/json")
    for sent, got in {
        "": "application/json",
        "*/*": "application/json",
        "image/png": "image/png",
        "Audio/L16; rate=16000": "Audio/L16; rate=16000",
        "text/html;q=0.5": "text/html",
        "text/html, text/csv;q=0.5": "text/csv",
        "image/webp, image/png": "image/webp",
    }.items():
        assert shown(client, b"1", accept=sent)[3] == got, sent


def test_default_functions_read_only_utf_8(serve: Any) -> None:
    client = serve("def model_fn(model_dir):\n    return lambda data: data\n")
    headers = {"content-type": "Application/JSON; charset=UTF-8"}
    assert client.post("/invocations", content='"ä"'.encode(), headers=headers).json() == "ä"
    for body, kind, status in (
        (b"\xff", "text/csv", 400),
        (b" ", "text/csv", 400),
        (b"1", "text/csv;charset=latin1", 415),
    ):
        assert client.post("/invocations", content=body, headers={"content-type": kind}).status_code == status


STATUSES = """
def model_fn(model_dir):
    return None

def predict_fn(data, model, context):
    context.set_response_status(data)
    return {"a": "body"}
"""


def test_statuses_without_a_body_and_those_that_no_response_can_have(serve: Any) -> None:
    client = serve(STATUSES)
    for status in (204, 304):
        response = client.post("/invocations", json=status)
        assert (response.status_code, response.content) == (status, b"")
        assert not {"content-type", "content-length"} & response.headers.keys()
    for status in (100, 101, 600):
        code, kind, sentence = error_of(client.post("/invocations", json=status))
        assert (code, kind) == (500, "handler_failed")
        assert f"the response's status is {status}" in sentence
    assert client.post("/invocations", json=201).json() == {"a": "body"}


FUNCTIONS = """
import asyncio

async def model_fn(model_dir, **options):
    return asyncio.get_running_loop()

async def predict_fn(data, model, top=3):
    await asyncio.sleep(0)
    return [data, top, options_of(model)]

def options_of(loop):
    return loop is asyncio.get_running_loop()

class Writer:
    async def __call__(self, prediction, accept, *, context):
        context.set_response_content_type(0, "text/plain")
        yield repr(prediction)
        yield b"!"

output_fn = Writer()
"""


def test_functions_may_be_async_or_callable_objects(serve: Any) -> None:
    response = serve(FUNCTIONS).post("/invocations", json=1)
    assert (response.text, response.headers["content-type"]) == ("[1, 3, True]!", "text/plain")


def test_parts_that_output_fn_yields_are_joined(serve: Any) -> None:
    client = serve(
        "def model_fn(d):\n    return len\n\ndef output_fn(found, accept):\n    yield str(found)\n    yield b'!'\n"
    )
    assert client.post("/invocations", json=[1, 2]).content == b"2!"


def test_values_that_predict_fn_yields_are_a_list(serve: Any) -> None:
    client = serve("def model_fn(model_dir): ...\ndef predict_fn(data, model):\n    yield from data\n")
    assert client.post("/invocations", json=[1, 2]).json() == [1, 2]
    lines = client.post("/invocations", json=[1, 2], headers={"accept": "application/jsonlines"})
    assert lines.text == "1\n2\n"
