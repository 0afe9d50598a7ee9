"""model.tar.gz: written atomically with files at the root; unsafe and incomplete archives, and unusable models."""

import io
import tarfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.contract.served_model import serving_faults
from berth.local import archive
from tests.files import write_files


def files(root: Path, *names: str) -> Path:
    return write_files(root, {name: f"{root.name}:{name}" for name in names})


def test_pack_writes_files_at_the_root_without_owners(tmp_path: Path) -> None:
    model = files(tmp_path / "1", "model.safetensors", "code/inference.py")
    (model / "again").hardlink_to(model / "model.safetensors")
    sources = {name: model / name for name in ("model.safetensors", "code/inference.py", "again")}
    packed = archive.pack(sources, tmp_path / "model.tar.gz")
    assert packed == tmp_path / "model.tar.gz"
    with tarfile.open(packed) as tar:
        assert tar.getnames() == ["again", "code/inference.py", "model.safetensors"]
        assert all(member.isreg() for member in tar), "our unpacker refuses hard links"
        assert {(member.uid, member.gid, member.uname) for member in tar} == {(0, 0, "")}
        assert tar.extractfile("model.safetensors").read() == b"1:model.safetensors"  # type: ignore[union-attr]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "model.tar.gz"]
    assert (archive.model_folder(packed, tmp_path / "2") / "again").read_text() == "1:model.safetensors"


def test_pack_without_files_keeps_the_earlier_archive(tmp_path: Path) -> None:
    old = tmp_path / "model.tar.gz"
    old.write_text("old")
    assert archive.pack({}, old) is None
    assert old.read_text() == "old"


def test_pack_error_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "model.tar.gz"
    target.mkdir()
    with pytest.raises(UserError, match=r"model\.tar\.gz can't be written"):
        archive.pack({"a": files(tmp_path / "1", "a") / "a"}, target)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_archive_with_path_outside_is_refused(tmp_path: Path) -> None:
    evil = tmp_path / "model.tar.gz"
    with tarfile.open(evil, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../out"), io.BytesIO())
    with pytest.raises(UserError, match="reaches out"):
        archive.model_folder(evil, tmp_path / "x")
    assert not (tmp_path / "x" / "out").exists()


def test_truncated_archive_is_refused(tmp_path: Path) -> None:
    folder = files(tmp_path / "1", "a", "b")
    whole = archive.pack({name: folder / name for name in ("a", "b")}, tmp_path / "model.tar.gz")
    assert whole is not None
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(UserError, match="can't be unpacked"):
        archive.model_folder(whole, tmp_path)


@pytest.mark.parametrize("inside", [".", "mine"])
def test_model_home_is_the_folder_or_its_only_subfolder(inside: str, tmp_path: Path) -> None:
    folder = files(tmp_path / "model", f"{inside}/config.json", f"{inside}/model.safetensors")
    assert archive.model_home(folder, folder) == folder / inside


@pytest.mark.parametrize(
    ("names", "tokenizer", "message"),
    [
        (["config.json", "vocab.txt"], False, "mine.tar.gz has no weights"),
        (["config.json", "model.safetensors"], True, "mine.tar.gz has no tokenizer"),
        (["config.json", "model.safetensors", "vocab.txt"], True, ""),
    ],
)
def test_model_home_needs_weights_and_on_request_a_tokenizer(
    names: list[str], tokenizer: bool, message: str, tmp_path: Path
) -> None:
    folder = files(tmp_path / "model", *names)
    with pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        assert archive.model_home(folder, Path("mine.tar.gz"), tokenizer=tokenizer) == folder


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["code/inference.py"], id="a-handler-alone"),
        pytest.param(["config.json", "code/inference.py"], id="a-handler-and-config"),
        pytest.param(["mine/config.json", "mine/code/lib/handler.py"], id="one-level-down"),
        pytest.param(["config.json", "model.safetensors", "vocab.txt"], id="a-model"),
    ],
)
def test_check_servable_accepts_models_and_handlers(names: list[str], tmp_path: Path) -> None:
    folder = files(tmp_path / "model", *names)
    for config in folder.rglob("config.json"):
        config.write_text('{"model_type": "bert"}')
    archive.check_servable(folder, folder)


@pytest.mark.parametrize("names", [["inference.py"], ["code/requirements.txt"], ["config.json"]])
def test_check_servable_reports_the_faults_of_the_server(names: list[str], tmp_path: Path) -> None:
    folder = files(tmp_path / "model", *names)
    with pytest.raises(UserError) as refused:
        archive.check_servable(folder, Path("mine"))
    assert str(refused.value) == f"{'; '.join(serving_faults(folder, 'mine'))}."


def test_hub_cache_is_copied_without_links(tmp_path: Path) -> None:
    blobs = files(tmp_path / "blobs", "1", "2")
    snapshot = tmp_path / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(blobs / "1")
    (snapshot / "model.safetensors").symlink_to(blobs / "2")
    found = archive.model_folder(snapshot, tmp_path / "scratch")
    assert found == tmp_path / "scratch" / "model"
    assert not any(path.is_symlink() for path in found.iterdir())
    assert archive.model_home(found, snapshot) == found


def test_model_folder_with_inner_links_is_not_copied(tmp_path: Path) -> None:
    folder = files(tmp_path / "model", "config.json", "model.safetensors")
    (folder / "weights.safetensors").symlink_to("model.safetensors")
    assert archive.model_folder(folder, tmp_path) == folder.resolve()


def test_archive_in_an_output_folder_is_proposed(tmp_path: Path) -> None:
    out = files(tmp_path / "out", "earlier-output.tar.gz", "model.tar.gz", "train.log")
    with pytest.raises(UserError, match=r"out holds no model, but \S+/out/model.tar.gz is one: pass that"):
        archive.model_folder(out, tmp_path)
    (out / "config.json").touch()
    assert archive.model_folder(out, tmp_path) == out
