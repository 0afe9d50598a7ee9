"""Warnings about files and functions of a model that the server does not use."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from berth.serve.user_code.find import find_code, unused_files
from tests.unit.serve.in_process import failure_of, ready_service

HANDLER = "def predict_fn(data, model):\n    return data\n"


def lines(root: Path, files: dict[str, str], named: str = "") -> list[str]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = find_code(root, {"SAGEMAKER_PROGRAM": named})
    found = unused_files(root, code)
    assert all("\n" not in line for line in found)
    return [line.replace(f"{root}/", "") for line in found]


@pytest.mark.parametrize(
    ("files", "named", "facts"),
    [
        ({"inference.py": HANDLER}, "", ["inference.py is not run: put it into code/ as inference.py"]),
        ({"Code/inference.py": HANDLER}, "", ["Code/inference.py is not run: put it into code/ as inference.py"]),
        ({"code/src/inference.py": HANDLER}, "", ["SAGEMAKER_PROGRAM to src/inference.py"]),
        (
            {"code/train.py": "", "code/inference.py": HANDLER},
            "train.py",
            ["code/inference.py is not run: set SAGEMAKER_PROGRAM to inference.py"],
        ),
        ({"code/serve.py": HANDLER}, "", ["code/serve.py is not run: set SAGEMAKER_PROGRAM to serve.py"]),
        ({"code/inference.py": "def predict(x): ...\n"}, "", ["predict is not called", "predict_fn"]),
        ({"code/inference.py": "def handle(data, context): ...\n"}, "", ["handle is not called", "transform_fn"]),
        (
            {"code/inference.py": HANDLER + "def model_func(d): ...\ndef inputs_fn(b, c): ...\n"},
            "",
            ["inputs_fn is not called; if it is meant to be input_fn", "model_func is not called"],
        ),
        (
            {"requirements.txt": "a", "code/inference.py": HANDLER},
            "",
            ["requirements.txt is not installed: move it"],
        ),
        (
            {"code/requirements.txt": "a", "code/sub/requirements.txt": "b", "code/inference.py": HANDLER},
            "",
            ["code/sub/requirements.txt is not installed: code/requirements.txt is"],
        ),
        ({"requirements.txt": "a", "config.json": "{}"}, "", ["requirements.txt is not installed: put it into code/"]),
        ({"code.zip": "", "config.json": "{}"}, "", ["code.zip is not unpacked", "code/"]),
        (
            {"bert/config.json": "{}", "inference.py": HANDLER},
            "",
            ["inference.py is not run: put it into code/ as inference.py"],
        ),
        ({"inference.py": HANDLER, "code/inference.py": HANDLER}, "", ["inference.py is not run, because code/"]),
    ],
)
def test_unused_files_and_functions_are_reported(
    tmp_path: Path, files: dict[str, str], named: str, facts: list[str]
) -> None:
    found = "\n".join(lines(tmp_path, files, named))
    assert all(fact in found for fact in facts), found


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"config.json": "{}", "modeling_mine.py": "class Mine: ...\n", "README.md": ""}, ""),
        ({"code/inference.py": HANDLER, "code/requirements.txt": "a", "code/helpers.py": HANDLER}, ""),
        ({"code/inference.py": "def preprocess(x): ...\n\n\ndef predict_fn(d, m):\n    preprocess(d)\n"}, ""),
        ({"bert/config.json": "{}", "bert/code/inference.py": HANDLER}, ""),
        ({"code/src/inference.py": HANDLER, "code/requirements.txt": "a"}, "src/inference.py"),
        ({"code/train.py": "def main(): ...\n", "code/requirements.txt": "a"}, "train.py"),
        ({"code/train.py": "import data\n", "code/data.py": "def preprocess(x): ...\n"}, "train.py"),
        ({"code/broken.py": "(", "code/inference.py": HANDLER, ".git/inference.py": HANDLER}, ""),
    ],
)
def test_used_files_are_not_reported(tmp_path: Path, files: dict[str, str], named: str) -> None:
    assert lines(tmp_path, files, named) == []


def test_unused_handler_is_logged_at_start(model: Any, tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = model()
    shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
    (folder / "inference.py").write_text(HANDLER)
    ready_service(folder)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"{folder}/inference.py is not run: put it into code/ as inference.py"]


def test_error_of_a_missing_model_names_the_unused_handler(model: Any) -> None:
    folder = model()
    (folder / "inference.py").write_text(HANDLER)
    line = f"{folder}/inference.py is not run: put it into code/ as inference.py"
    assert line in failure_of(folder)
    assert line in failure_of(folder, SAGEMAKER_PROGRAM="other.py")
