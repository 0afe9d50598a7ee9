"""Loads that fail: invalid bodies, names and folders, and workers that can't be started."""

import os
from pathlib import Path

import pytest

from berth.serve.errors import ServeError
from berth.serve.models.folder import find_folder, needed_memory
from tests.files import write_files
from tests.unit.serve.in_process import error_of
from tests.unit.serve.models.endpoint import ECHO, Endpoint, add_model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", 'the body is empty: send {"model_name": "…", "url": "/opt/ml/models/…"}'),
        (b"[]", 'the body must be {"model_name": "…", "url": "/opt/ml/models/…"}'),
        (b'{"model_name": 3}', "`model_name` is missing: it must be a string; `url` is missing: it must be a string"),
        (
            b'{"model_name": "a/b", "url": "%(root)s/x"}',
            "`model_name` is `a/b`: it must be 1 to 1024 letters",
        ),
        (b'{"model_name": "..", "url": "%(root)s/x"}', "`model_name` is `..`: it must be 1 to 1024 letters"),
        (b'{"model_name": "a", "url": "%(root)s/x"}', "`url` is `%(root)s/x`: there is no such folder"),
        (
            b'{"model_name": "a", "url": "%(root)s"}',
            "`url` is `%(root)s`: neither it nor a folder in it has a config.json or code/",
        ),
        (b'{"model_name": "a", "url": "/etc"}', "`url` is `/etc`: it must be a folder below %(root)s"),
        (
            b'{"model_name": "a", "url": "%(root)s/../scratch"}',
            "`url` is `%(root)s/../scratch`: it must be a folder below",
        ),
        (b'{"model_name": "a", "url": "/a\\u0000"}', "`url` is `/a\x00`: it must be a folder below %(root)s"),
    ],
)
def test_invalid_load_request_gets_400(endpoint: Endpoint, body: bytes, sentence: str) -> None:
    root = str(endpoint.root / "models")
    status, kind, message = error_of(endpoint.client.post("/models", content=body.replace(b"%(root)s", root.encode())))
    assert (status, kind) == (400, "bad_request")
    assert message.startswith(sentence.replace("%(root)s", root)[:80])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("x" * 300, "file name too long"),
        ("x/" * 3000, "file name too long"),
        ("loop", "must be a folder below"),
        ("loop/model", "must be a folder below"),
        ("file", "it is not a folder"),
        ("file/model", "no such folder"),
        ("model.tar.gz", "unpack an archive"),
        ("packed", "unpack the archive"),
        ("empty", "has a config.json or code/inference.py"),
        ("../outside", "must be a folder below"),
        ("link-out", "must be a folder below"),
        ("dangling", "no such folder"),
        ("\ud800", "must be a folder below"),
        ("\N{SNOWMAN} model", "no such folder"),
    ],
    ids=ascii,
)
def test_find_folder_refuses_paths_without_a_model(root: Path, name: str, fact: str) -> None:
    (root / "loop").symlink_to(root / "loop")
    write_files(root, {"file": "", "model.tar.gz": "", "packed/model.tar.gz": ""})
    (root / "empty").mkdir()
    (root.parent / "outside").mkdir()
    (root / "link-out").symlink_to(root.parent / "outside")
    (root / "dangling").symlink_to(root / "nothing")
    with pytest.raises(ServeError) as raised:
        find_folder(f"{root}/{name}", [root])
    assert fact in raised.value.message
    assert len(raised.value.message) < 400


@pytest.mark.parametrize("name", ["a.b-c_d", "\N{SNOWMAN} model", "x" * 255], ids=ascii)
def test_find_folder_accepts_a_folder_with_code(root: Path, name: str) -> None:
    write_files(root / name, {"code/inference.py": ""})
    assert find_folder(f"{root}/{name}", [root]) == root / name


@pytest.mark.slow
def test_model_name_may_have_1024_characters(endpoint: Endpoint) -> None:
    folder = add_model(endpoint, "echo", inference_py=ECHO)
    name = "x" * 1024
    assert endpoint.load(name, folder).status_code == 200
    assert endpoint.client.post(f"/models/{name}/invoke", json=[1]).json() == [1]
    assert endpoint.client.delete(f"/models/{name}").status_code == 200
    assert error_of(endpoint.load(name + "x", folder))[:2] == (400, "bad_request")


def test_folder_that_vanishes_during_a_load_gets_500(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanished(folder: Path) -> int:
        raise FileNotFoundError(2, "No such file or directory", str(folder / "model.safetensors"))

    monkeypatch.setattr("berth.serve.models.registry.needed_memory", vanished)
    status, kind, sentence = error_of(endpoint.load("a", add_model(endpoint, "echo", inference_py=ECHO)))
    assert (status, kind) == (500, "broken_model")
    assert "model.safetensors" in sentence
    assert endpoint.nothing_is_left()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(12, 507), (24, 507), (11, 507), (28, 500), (13, 500)])
def test_status_of_a_worker_that_can_not_be_started(endpoint: Endpoint, number: int, status: int) -> None:
    def start(folder: Path, scratch: Path) -> None:
        raise OSError(number, os.strerror(number), str(scratch))

    endpoint.models._start = start  # type: ignore[assignment]
    found = error_of(endpoint.load("a", add_model(endpoint, "echo", inference_py=ECHO)))
    assert found[0] == status
    assert os.strerror(number) in found[2]
    assert endpoint.nothing_is_left()


def test_needed_memory_of_weights_and_of_code(tmp_path: Path) -> None:
    write_files(tmp_path, {"openvino/fp32.bin": "x" * 1000, "model.safetensors": "x" * 1000})
    (tmp_path / "dangling.bin").symlink_to(tmp_path / "nothing")
    assert needed_memory(tmp_path) == 160_003_500
    write_files(tmp_path, {"code/inference.py": "pass"})
    assert needed_memory(tmp_path) == 300_002_004
