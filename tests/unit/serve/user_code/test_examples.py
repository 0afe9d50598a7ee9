"""The examples of a handler in serve/README.md run, and `input_fn`'s default gives what it says."""

import io
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from berth.images import pins
from tests.unit.serve.in_process import ONE, error_of

PAGE = (pins.ROOT / "serve/README.md").read_text("utf-8")
ALONE, WITH_MODEL = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SHOW = """
import numpy as np

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    return {"array": data.tolist()} if isinstance(data, np.ndarray) else {"value": data}
"""


def test_predict_fn_alone(tiny_model: Path, model: Any, serve: Any) -> None:
    shutil.copytree(tiny_model, model(), dirs_exist_ok=True)
    client = serve(ALONE)
    answers = client.post("/invocations", json=ONE).json()
    assert len(answers) > 1
    least = answers[0]["score"]
    assert client.post("/invocations", json={**ONE, "least": least}).json() == [
        answer for answer in answers if answer["score"] >= least
    ]


def test_model_fn_and_predict_fn(model: Any, serve: Any) -> None:
    (model() / "words.txt").write_text("ship berth\n")
    assert serve(WITH_MODEL).post("/invocations", json={"inputs": ["berth", "train"]}).json() == [True, False]


def test_what_the_default_of_input_fn_gives(serve: Any) -> None:
    client = serve(SHOW)
    array = io.BytesIO()
    np.save(array, np.array([[1, 2], [3, 4]]))
    given: list[tuple[str, bytes, dict[str, Any]]] = [
        ("application/json", b'{"inputs": [1]}', {"value": {"inputs": [1]}}),
        ("application/jsonlines", b'{"a": 1}\n2\n', {"value": [{"a": 1}, 2]}),
        ("text/csv", b"1,two\n3,four\n", {"value": [["1", "two"], ["3", "four"]]}),
        ("text/csv", b"inputs\nx\n", {"value": {"inputs": ["x"]}}),
        ("text/csv", b"question,context\nq,c\n", {"value": {"inputs": [{"question": "q", "context": "c"}]}}),
        ("application/x-npy", array.getvalue(), {"array": [[1, 2], [3, 4]]}),
    ]
    headers = {"accept": "application/json"}
    for media_type, body, data in given:
        response = client.post("/invocations", content=body, headers={**headers, "content-type": media_type})
        assert response.json() == data, media_type
        assert f"| `{media_type}`" in PAGE.partition("what `predict_fn` gets")[2]
    other = client.post("/invocations", content=b"x", headers={**headers, "content-type": "text/x-other"})
    assert error_of(other)[:2] == (415, "unsupported_media_type")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "inference.py"])
def test_the_archive(tiny_model: Path, name: str) -> None:
    assert f"── {name}\n" in PAGE
    assert name == "inference.py" or (tiny_model / name).is_file()
