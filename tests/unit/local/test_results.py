"""Results are read from a host's folder without following links that lead out of it, and without opening pipes."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.local import results

CONTAINER_PATH = "/opt/ml/model"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host's /opt/ml; next to it is a file of the machine's own, which must not be read."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("the machine's")
    for folder in ("model/sub", "output/data"):
        (tmp_path / "ml" / folder).mkdir(parents=True)
    (tmp_path / "ml/model/model.safetensors").write_text("weights")
    return tmp_path / "ml"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param("latest", "model.safetensors", id="same-folder"),
        pytest.param("latest", "/opt/ml/model/model.safetensors", id="absolute-in-container"),
        pytest.param("sub/latest", "../model.safetensors", id="from-subfolder"),
        pytest.param("sub/latest", "../sub/../model.safetensors", id="there-and-back"),
    ],
)
def test_link_to_file_inside_the_folder_is_packed_as_that_file(root: Path, name: str, target: str) -> None:
    (root / "model" / name).symlink_to(target)
    found = results.read_folder(root, "model", CONTAINER_PATH)
    assert found.files == dict.fromkeys(("model.safetensors", name), root / "model/model.safetensors")
    assert found.sentence("model") == ""


@pytest.mark.parametrize(
    ("target", "why"),
    [
        pytest.param("{out}/secret/key", "a link that leads out of it", id="absolute"),
        pytest.param("../../secret/key", "a link that leads out of it", id="relative"),
        pytest.param("/opt/ml/model/../../secret/key", "a link that leads out of it", id="via-the-folder"),
        pytest.param("../model/model.safetensors", "a link that leads out of it", id="out-and-in-again"),
        pytest.param("x", "a link that leads out of it", id="to-itself"),
        pytest.param("through/key", "a link that leads out of it", id="through-another-link"),
        pytest.param("sub", "a link to a folder", id="to-a-folder"),
        pytest.param("nowhere", "a link to nothing", id="to-nothing"),
    ],
)
def test_other_links_are_left_out_and_named(root: Path, tmp_path: Path, target: str, why: str) -> None:
    if target.startswith("through"):
        (root / "model/through").symlink_to(tmp_path / "secret")
    (root / "model/x").symlink_to(target.format(out=tmp_path))
    found = results.read_folder(root, "model", CONTAINER_PATH)
    assert list(found.files) == ["model.safetensors"]
    assert f"'x' ({why})" in found.left_out


def make_socket(path: Path) -> None:
    os.chdir(path.parent)  # a socket's path has 107 characters at most
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


@pytest.mark.parametrize(
    ("make", "kind"), [pytest.param(os.mkfifo, "a pipe", id="pipe"), pytest.param(make_socket, "a socket", id="socket")]
)
def test_pipes_and_sockets_are_left_out_without_being_opened(
    root: Path, make: Callable[[Path], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    (root / "model/model.safetensors").unlink()
    make(root / "model/model.safetensors")
    found = results.read_folder(root, "model", CONTAINER_PATH)
    assert (found.files, found.left_out) == ({}, [f"'model.safetensors' ({kind})"])
    with pytest.raises(OSError, match=kind):
        results.open_regular(root / "model/model.safetensors")


@pytest.mark.parametrize(
    ("folder", "replaced"),
    [
        pytest.param("model", "model", id="model"),
        pytest.param("output/data", "output/data", id="data"),
        pytest.param("output/data", "output", id="parent"),
    ],
)
def test_link_in_place_of_the_folder_is_not_followed(root: Path, tmp_path: Path, folder: str, replaced: str) -> None:
    (tmp_path / "secret/data").mkdir()
    (tmp_path / "secret/data/key").write_text("the machine's")
    (root / replaced).rename(tmp_path / "aside")
    (root / replaced).symlink_to(tmp_path / "secret")
    found = results.read_folder(root, folder, f"/opt/ml/{folder}")
    assert (found.files, len(found.left_out)) == ({}, 1)
    assert f"{replaced!r} itself (a link in place of the folder)" in found.sentence(folder)


def test_missing_folder_counts_as_empty(root: Path) -> None:
    (root / "output/data").rmdir()
    assert results.read_folder(root, "output/data", "/opt/ml/output/data") == results.ResultFolder()


def test_sentence_abbreviates_many_names(root: Path) -> None:
    for number in range(12):
        (root / f"model/{number:02}").symlink_to("/")
    sentence = results.read_folder(root, "model", CONTAINER_PATH).sentence("/opt/ml/model of algo-1")
    assert sentence.startswith(
        "Not copied from /opt/ml/model of algo-1, because only regular files inside it are: '00'"
    )
    assert sentence.endswith("'09' (a link that leads out of it) and 2 more.")


def test_read_failure_reads_only_the_beginning(root: Path) -> None:
    assert results.read_failure(root) == ""
    (root / "output/failure").write_text("ValueError: boom\n" + "x" * 10_000_000)
    assert results.read_failure(root).startswith("ValueError: boom\nxxx")
    assert len(results.read_failure(root)) < 20_000


def test_read_failure_refuses_links_and_pipes(root: Path, tmp_path: Path) -> None:
    (root / "output/failure").symlink_to(tmp_path / "secret/key")
    prefix = "The job's /opt/ml/output/failure is not read: "
    assert results.read_failure(root) == f"{prefix}'failure' is a link, not a regular file."
    (root / "output/failure").unlink()
    os.mkfifo(root / "output/failure")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(results.read_failure(root)), daemon=True)
    reader.start()
    reader.join(10)
    assert read == [f"{prefix}'failure' is a pipe, not a regular file."]
    (root / "output").rename(tmp_path / "aside")
    (root / "output").symlink_to(tmp_path / "secret")
    assert results.read_failure(root) == f"{prefix}'output' itself (a link in place of the folder)."


def test_unsafe_entries_finds_outer_links_and_pipes(root: Path, tmp_path: Path) -> None:
    (root / "model/sub/out").symlink_to(tmp_path / "secret/key")
    (root / "model/last").symlink_to("sub")
    os.mkfifo(root / "model/pipe")
    found = {path.name: kind for path, kind in results.unsafe_entries(root / "model", CONTAINER_PATH)}
    assert found == {"out": "a link that leads out of it", "pipe": "a pipe"}
