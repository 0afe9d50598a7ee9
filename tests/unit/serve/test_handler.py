"""The handler is what SageMaker's toolkit takes for a default handler: its own Transformer runs it, unchanged."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sagemaker_inference.transformer import Transformer

from berth.serve.handler import QuestionAnsweringHandler

QUESTION = {"question": "who?", "context": "abc def"}


class Context:
    """What the toolkit asks of a model server: the request's headers, and a place for the answer's type and status."""

    def __init__(self, model_dir: Path, **headers: str) -> None:
        self.system_properties = {"model_dir": str(model_dir)}
        self.request_processor = [SimpleNamespace(get_request_properties=lambda: headers)]
        self.content_type: str | None = None
        self.status: int | None = None

    def set_response_content_type(self, _index: int, content_type: str) -> None:
        self.content_type = content_type

    def set_response_status(self, code: int, phrase: str) -> None:
        self.status = code


def transform(model_dir: Path, body: bytes) -> tuple[Any, Context]:
    context = Context(model_dir, **{"Content-Type": "application/json", "Accept": "application/json"})
    return Transformer(QuestionAnsweringHandler()).transform([{"body": body}], context)[0], context


def test_the_toolkit_runs_the_four_functions(tiny_model: Path) -> None:
    body, context = transform(tiny_model, json.dumps({"inputs": QUESTION}).encode())
    assert (context.status, context.content_type) == (None, "application/json")
    assert list(json.loads(body)) == ["score", "start", "end", "answer"]


def test_a_users_function_takes_the_place_of_ours(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
from berth.serve.request import parse

def input_fn(data, content_type):
    return parse({{"inputs": {QUESTION!r}}})
"""
    (tmp_path / "berth_user_inference.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SAGEMAKER_PROGRAM", "berth_user_inference.py")
    body, _ = transform(tiny_model, b"something of the user's own")
    assert json.loads(body)["answer"] in QUESTION["context"]
