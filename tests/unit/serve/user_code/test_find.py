"""Finding the file of a user's handler without importing it."""

from pathlib import Path

import pytest

from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.user_code.find import FUNCTIONS, NoHandler, UserCode, find_code
from tests.files import write_files

HANDLER = "def predict_fn(data, model):\n    return data\n"


def write(root: Path, name: str, text: str = HANDLER) -> Path:
    return write_files(root, {name: text}) / name


def handler_in(root: Path, **environ: str) -> Path | None:
    code = find_code(root / "model", environ)
    return code.file.relative_to(root) if isinstance(code, UserCode) else None


@pytest.mark.parametrize(
    "name",
    ["model/code/inference.py", "model/bert/code/inference.py", "code/inference.py"],
    ids=["in the archive", "a folder deeper", "mounted"],
)
def test_folders_in_which_a_handler_is_found(tmp_path: Path, name: str) -> None:
    assert handler_in(tmp_path) is None
    write(tmp_path, "model/bert/config.json", "{}")
    write(tmp_path, name)
    assert handler_in(tmp_path) == Path(name)
    # The SDK sets these variables for a model without code, and for one with code.
    assert handler_in(tmp_path, SAGEMAKER_PROGRAM="", SAGEMAKER_SUBMIT_DIRECTORY="") == Path(name)
    nowhere = str(tmp_path / "nowhere")
    assert handler_in(tmp_path, SAGEMAKER_PROGRAM="inference.py", SAGEMAKER_SUBMIT_DIRECTORY=nowhere) == Path(name)


@pytest.mark.parametrize("inner", ["", "bert"])
def test_model_dir_is_the_folder_inside_the_archive(tmp_path: Path, inner: str) -> None:
    write(tmp_path / "model" / inner, "config.json", "{}")
    write(tmp_path / "model" / inner, "code/inference.py")
    code = find_code(tmp_path / "model", {})
    assert isinstance(code, UserCode)
    assert code.model_dir(tmp_path / "model") == tmp_path / "model" / inner


def test_several_models_with_code_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path, f"model/{name}/config.json", "{}")
        write(tmp_path, f"model/{name}/code/inference.py")
    with pytest.raises(ModelFilesError, match=r"holds several models with code \(one, two\): put one of them there"):
        find_code(tmp_path / "model", {})


@pytest.mark.parametrize(
    ("file", "program", "folder"),
    [
        ("mine/sub/handler.py", "sub/handler.py", "{0}/mine"),
        ("mine/sub/handler.py", "sub/handler.py", "file://{0}/mine"),
        ("mine/sub/handler.py", "sub/handler", "{0}/mine"),
        # The SDK's local mode names the file on the user's machine for an entry_point without a source_dir.
        ("model/code/mine.py", "/home/me/src/mine.py", ""),
        ("model/code/mine.py", "../src/mine.py", ""),
        ("model/code/mine.py", "src/mine.py", ""),
        ("model/code/mine.py", "src/mine", ""),
    ],
)
def test_variables_name_folder_and_file_of_the_handler(tmp_path: Path, file: str, program: str, folder: str) -> None:
    write(tmp_path, "model/code/inference.py")
    write(tmp_path, file)
    variables = {"SAGEMAKER_PROGRAM": program, "SAGEMAKER_SUBMIT_DIRECTORY": folder.format(tmp_path)}
    assert handler_in(tmp_path, **variables) == Path(file)


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        (HANDLER, {"predict_fn"}),
        (
            "try:\n    from mine import model_fn, run as transform_fn\nexcept ImportError:\n    pass\n",
            {"model_fn", "transform_fn"},
        ),
        ("output_fn = lambda prediction, accept: prediction\n", {"output_fn"}),
        ("from helpers import *\n", set()),
        (HANDLER + "from elsewhere import *\n", set(FUNCTIONS)),
        ("import torch\n\ndef main():\n    def predict_fn(): ...\n\nmain()\n", set()),
        ("class Model:\n    def predict_fn(self): ...\n", set()),
        ("", set()),
    ],
    ids=[
        "def",
        "import",
        "assignment",
        "star",
        "star and def",
        "a training program",
        "a method",
        "empty",
    ],
)
def test_file_is_a_handler_only_with_one_of_its_functions(tmp_path: Path, text: str, functions: set[str]) -> None:
    file = write(tmp_path, "model/code/train.py", text)
    code = find_code(tmp_path / "model", {"SAGEMAKER_PROGRAM": "train.py"})
    if functions:
        assert code == UserCode(file, frozenset(functions))
    else:
        names = "model_fn, input_fn, predict_fn, output_fn, transform_fn"
        assert code == NoHandler(f"{file} has none of {names}, and is not run")


def test_inference_py_with_import_star_is_a_handler(tmp_path: Path) -> None:
    file = write(tmp_path, "model/code/inference.py", "from elsewhere import *\n")
    assert find_code(tmp_path / "model", {}) == UserCode(file, frozenset(FUNCTIONS))


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("other.py", "SAGEMAKER_PROGRAM is `other.py`, and there is no such file in {0}/model/code, {0}/code: pack it"),
        ("../other.py", "SAGEMAKER_PROGRAM is `../other.py`: it must be a file inside the model's code folder"),
        ("/etc/other.py", "SAGEMAKER_PROGRAM is `/etc/other.py`: it must be a file inside the model's code folder"),
        (
            "broken.py",
            "{0}/model/code/broken.py is not valid Python: '(' was never closed (broken.py, line 1)",
        ),
    ],
)
def test_missing_or_broken_program_is_refused(tmp_path: Path, program: str, sentence: str) -> None:
    write(tmp_path, "model/code/broken.py", "def predict_fn(\n")
    with pytest.raises(ModelFilesError) as caught:
        find_code(tmp_path / "model", {"SAGEMAKER_PROGRAM": program})
    assert str(caught.value).startswith(sentence.format(tmp_path))


def test_program_in_a_subfolder_keeps_its_source_folder(tmp_path: Path) -> None:
    """The SDK sets these variables for entry_point="src/inference.py" with a source_dir."""
    variables = {"SAGEMAKER_PROGRAM": "src/inference.py", "SAGEMAKER_SUBMIT_DIRECTORY": str(tmp_path / "model/code")}
    file = write(tmp_path, "model/code/src/inference.py", "from parts import *\n")
    write(tmp_path, "model/code/parts.py")
    inner = write(tmp_path, "model/code/src/requirements.txt", "h11\n")
    code = find_code(tmp_path / "model", variables)
    assert code == UserCode(file, frozenset(FUNCTIONS), tmp_path / "model/code")
    assert code.folder == tmp_path / "model/code"
    assert code.requirements == inner
    top = write(tmp_path, "model/code/requirements.txt", "h11\n")
    assert code.requirements == top


def test_empty_requirements_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, "model/code/inference.py")
    write(tmp_path, "model/code/requirements.txt", " \n")
    code = find_code(tmp_path / "model", {})
    assert isinstance(code, UserCode)
    assert code.requirements is None
    path = write(tmp_path, "model/code/requirements.txt", "tabulate\n")
    assert code.requirements == path
