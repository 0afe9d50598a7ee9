"""The types that a handler's functions accept and return, and the kinds of functions that it may have."""

from typing import Any

RETURNS_ACCEPT = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    return accept, "text/plain"
"""


def test_handler_gets_one_accepted_type(serve: Any) -> None:
    client = serve(RETURNS_ACCEPT, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="application/json")
    for header, accept in {
        "": "application/json",
        "*/*": "application/json",
        "image/png": "image/png",
        "Audio/L16; rate=16000": "Audio/L16; rate=16000",
        "text/html;q=0.5": "text/html",
        "text/html, text/csv;q=0.5": "text/csv",
        "image/webp, image/png": "image/webp",
    }.items():
        assert client.post("/invocations", content=b"1", headers={"accept": header}).text == accept, header


FUNCTIONS = """
import asyncio

async def model_fn(model_dir, **options):
    return asyncio.get_running_loop()

async def predict_fn(data, model, top=3):
    await asyncio.sleep(0)
    return [data, top, is_running_loop(model)]

def is_running_loop(loop):
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


def test_values_that_predict_fn_yields_are_a_list(serve: Any) -> None:
    client = serve("def model_fn(model_dir): ...\ndef predict_fn(data, model):\n    yield from data\n")
    assert client.post("/invocations", json=[1, 2]).json() == [1, 2]
    lines = client.post("/invocations", json=[1, 2], headers={"accept": "application/jsonlines"})
    assert lines.text == "1\n2\n"
