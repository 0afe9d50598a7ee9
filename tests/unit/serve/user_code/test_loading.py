"""Loading a handler: errors, packages, modules next to it, and code in S3."""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from starlette.testclient import TestClient

from berth.serve.http.app import create_app
from tests.files import write_files
from tests.unit.serve.in_process import ONE, ask, failure_of, ready_service
from tests.unit.serve.models.endpoint import add_wheel

ECHO = "def model_fn(model_dir):\n    return lambda data: data\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (
            "import no_such_module\n" + ECHO,
            [
                "the model's inference.py can't be imported, it raised ModuleNotFoundError: No module named "
                "'no_such_module' (raised at inference.py:1): the log has the traceback",
                "no_such_module",
                "requirements.txt",
            ],
        ),
        (
            "def model_fn(model_dir):\n    raise OSError('no weights')\n",
            ["model_fn of the model's inference.py raised OSError: no weights (raised at inference.py:2)"],
        ),
        (
            "import sys\nsys.exit('I go')\n" + ECHO,
            ["the model's inference.py can't be imported, it raised SystemExit: I go (raised at inference.py:2)"],
        ),
        (
            ECHO + "def transform_fn(model, data, content_type, accept): ...\ndef input_fn(data, content_type): ...\n",
            ["/code/inference.py can't be used: it has transform_fn and input_fn"],
        ),
        (
            "def model_fn():\n    return 1\n\ndef predict_fn(data): ...\n",
            ["model_fn() can't be called", "predict_fn(data) can't be called", "predict_fn(data, model)"],
        ),
        ("def model_fn(model_dir):\n    yield 1\n", ["model_fn yields the model"]),
        ("model_fn = 3\n", ["model_fn is not a function: int"]),
        ("def predict_fn(data, model): ...", ["/model holds no model"]),
        (
            {"inference_py": "import helpers\n" + ECHO, "helpers_py": "a = 1\ndef broken(:\n"},
            ["SyntaxError: invalid syntax (helpers.py, line 2)"],
        ),
    ],
    ids=[
        "import",
        "model_fn",
        "exit",
        "too many functions",
        "too few arguments",
        "a generator",
        "a number",
        "no model_fn and no model",
        "a helper module",
    ],
)
def test_error_of_a_handler_that_can_not_be_loaded(model: Any, files: str | dict[str, str], facts: list[str]) -> None:
    """`files`: inference.py, or the files by their names."""
    sentence = failure_of(model(**files) if isinstance(files, dict) else model(inference_py=files))
    assert all(fact in sentence for fact in facts), sentence


def test_error_for_a_pickle_of_the_training_scripts_class(model: Any) -> None:
    folder = model(
        inference_py="import pickle\n\ndef model_fn(d):\n    return pickle.load(open(d + '/model.pkl', 'rb'))\n"
    )
    (folder / "model.pkl").write_bytes(b"c__main__\nNet\n.")
    sentence = failure_of(folder)
    assert "AttributeError" in sentence
    assert "inference.py:4" in sentence
    assert "; Net was pickled in the script that defines it" in sentence


def test_crash_in_c_code_logs_the_users_line(model: Any, capfd: pytest.CaptureFixture[str]) -> None:
    folder = model(inference_py="import faulthandler\n\ndef model_fn(d):\n    faulthandler._sigsegv()\n")
    assert "SIGSEGV" in failure_of(folder)
    log = capfd.readouterr().err
    assert "loading the model's own code" in log
    assert f'File "{folder}/code/inference.py", line 4 in model_fn' in log


TRAINING = """
import pathlib
pathlib.Path(__file__).with_name("trained").touch()

def main():
    def model_fn(model_dir): ...

main()
"""
DEPLOYED_JOB = {"SAGEMAKER_PROGRAM": "train.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code"}
"""The variables of PyTorch(…).deploy(image_uri=…), which name the job's own program."""


def test_training_program_is_not_run_and_our_model_answers(
    tiny_model: Path, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folder = model(train_py=TRAINING, requirements_txt="no-such-package==1.0\n")
    shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
    caplog.set_level("INFO", "berth.serve.models.service")
    client = TestClient(create_app(ready_service(folder, **DEPLOYED_JOB)))
    answer = ask(client, ONE)
    assert answer["answer"] == ONE["context"][answer["start"] : answer["end"]]
    assert not (folder / "code/trained").exists()
    lines = [record.getMessage() for record in caplog.records if "train.py" in record.getMessage()]
    names = "model_fn, input_fn, predict_fn, output_fn, transform_fn"
    assert lines == [f"handler: the image's own; {folder}/code/train.py has none of {names}, and is not run"]


def test_error_names_a_training_program_beside_an_unknown_model(model: Any) -> None:
    folder = model(train_py=TRAINING)
    (folder / "model.pth").touch()
    failure = failure_of(folder, **DEPLOYED_JOB)
    assert "model.pth" in failure
    assert f"{folder}/code/train.py has none of model_fn" in failure


@pytest.mark.slow
def test_handlers_packages_do_not_change_the_servers(model: Any) -> None:
    """One package that only the handler needs, and an older version of one that the server itself uses."""
    handler = """
import h11, vendored_here

def model_fn(model_dir):
    return lambda data: [vendored_here.VALUE, h11.VALUE]
"""
    folder = model(inference_py=handler, requirements_txt="--no-index --find-links .\nvendored_here\nh11==1.0\n")
    add_wheel(folder, "vendored_here", 7)
    add_wheel(folder, "h11", 7)
    client = TestClient(create_app(ready_service(folder)))
    assert client.post("/invocations", json=[]).json() == [7, 7]
    import h11

    assert not hasattr(h11, "VALUE")


@pytest.mark.slow
def test_import_error_names_packages_that_requirements_replaced(model: Any) -> None:
    handler = "from h11 import Connection\n" + ECHO
    folder = model(inference_py=handler, requirements_txt="--no-index --find-links .\nh11==1.0\n")
    add_wheel(folder, "h11", 7)
    sentence = failure_of(folder)
    assert "ImportError: cannot import name 'Connection'" in sentence
    assert "requirements.txt replaces h11" in sentence


@pytest.mark.slow
def test_handler_imports_from_its_folder_source_folder_and_lib(model: Any) -> None:
    """The SDK packs entry_point "src/inference.py" of a source_dir like this, and `dependencies` in lib/."""
    handler = """
import beside, top, vendored_here
from dependency import part

def model_fn(model_dir):
    return lambda data: [beside.NAME, top.NAME, part.NAME, vendored_here.VALUE]
"""
    folder = model(top_py="NAME = 'top'", requirements_txt="--no-index --find-links .\nvendored_here\n")
    add_wheel(folder, "vendored_here", 7)
    files = {
        "src/inference.py": handler,
        "src/beside.py": "NAME = 'beside'",
        "lib/dependency/part.py": "NAME = 'part'",
    }
    write_files(folder / "code", files)
    variables = {"SAGEMAKER_PROGRAM": "src/inference.py", "SAGEMAKER_SUBMIT_DIRECTORY": str(folder / "code")}
    client = TestClient(create_app(ready_service(folder, **variables)))
    assert client.post("/invocations", json=[]).json() == ["beside", "top", "part", 7]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["json.py", "my-handler.v2.py"])
def test_handler_file_may_have_a_standard_modules_name(model: Any, name: str) -> None:
    folder = model()
    (folder / "code" / name).write_text("import json\n" + ECHO)
    client = TestClient(create_app(ready_service(folder, SAGEMAKER_PROGRAM=name)))
    assert client.post("/invocations", json=[5]).json() == [5]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Any:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    _, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield client
    server.stop()


@pytest.mark.slow
def test_code_is_fetched_from_s3(model: Any, bucket: Any, tmp_path: Path) -> None:
    folder = model()
    (tmp_path / "mine.py").write_text(ECHO)
    with tarfile.open(tmp_path / "sourcedir.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "mine.py", "mine.py")
    bucket.upload_file(str(tmp_path / "sourcedir.tar.gz"), "bucket", "a/sourcedir.tar.gz")
    variables = {
        "SAGEMAKER_PROGRAM": "mine.py",
        "SAGEMAKER_SUBMIT_DIRECTORY": "s3://bucket/a/sourcedir.tar.gz",
    }
    client = TestClient(create_app(ready_service(folder, **variables)))
    assert client.post("/invocations", json=[5]).json() == [5]
    missing = {**variables, "SAGEMAKER_SUBMIT_DIRECTORY": "s3://bucket/b/sourcedir.tar.gz"}
    sentence = failure_of(folder, **missing)
    assert sentence.startswith(
        "SAGEMAKER_SUBMIT_DIRECTORY is `s3://bucket/b/sourcedir.tar.gz`, which can't be fetched ("
    )
    assert "404" in sentence
