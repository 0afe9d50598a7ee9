"""Files are written atomically, also over leftovers of a killed process; errors of the disk name the folder."""

import errno
import os
import shutil
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.common.files import exchange, explain_os_errors, link_files, same_content, same_size


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "file.tar.gz"
    path.parent.mkdir()
    path.write_bytes(b"the wanted file")
    return path


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    return folder


def test_link_files_replaces_different_files(source: Path, context: Path) -> None:
    (context / source.name).write_bytes(b"an older one")
    for _ in range(2):
        link_files([source], context, same_content)
    assert (context / source.name).samefile(source)
    assert os.listdir(context) == [source.name]


def test_same_size_keeps_a_wheel(source: Path, context: Path) -> None:
    (context / source.name).write_bytes(b"x" * source.stat().st_size)
    link_files([source], context, same_size)
    assert not (context / source.name).samefile(source)
    (context / source.name).write_bytes(b"torn")
    link_files([source], context, same_size)
    assert (context / source.name).samefile(source)


def test_symlinked_wheel_becomes_a_file_in_the_build_context(source: Path, context: Path) -> None:
    """BuildKit would not follow a link out of the build context. A link from an earlier version is replaced."""
    link = source.parent / "links" / "other.whl"
    link.parent.mkdir()
    link.symlink_to(Path("..") / source.name)
    (context / link.name).symlink_to(source)
    link_files([link], context, same_size)
    assert not (context / link.name).is_symlink()
    assert (context / link.name).samefile(source)


def test_exchange_swaps_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at_once in (True, False):
        one, other = tmp_path / f"one-{at_once}", tmp_path / f"other-{at_once}"
        for folder in (one, other):
            folder.mkdir()
            (folder / folder.name).touch()
        if not at_once:
            monkeypatch.setattr("ctypes.CDLL", lambda _: object())
        exchange(one, other)
        assert (os.listdir(one), os.listdir(other)) == ([other.name], [one.name])
    assert len(os.listdir(tmp_path)) == 4


def test_leftover_temporary_file_is_not_written_through(
    source: Path, context: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leftover is a hard link to another file, which must not be overwritten."""
    other = source.with_name("other")
    other.write_bytes(b"unrelated")
    os.link(other, context / f".{source.name}.{os.getpid()}")
    monkeypatch.setattr(os, "link", MagicMock(side_effect=OSError("no links across file systems")))
    link_files([source], context, same_content)
    assert other.read_bytes() == b"unrelated"
    assert (context / source.name).read_bytes() == source.read_bytes(), "without links, files are copied"
    assert os.listdir(context) == [source.name]


def test_ctrl_c_leaves_no_temporary_file(source: Path, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(one: Path, other: Path) -> None:
        shutil.copy(one, other)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        link_files([source], context, same_content)
    assert os.listdir(context) == []


FULL = "the disk of {folder} is full, and x does not fit: free some room there, then run the command again."


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, FULL),
        (errno.EDQUOT, FULL),
        (errno.EROFS, "x can't be written to {folder} (why): check that this user may write there."),
    ],
)
def test_errors_of_the_disk_are_explained(number: int, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal, explain_os_errors(tmp_path, "x"):
        raise OSError(number, "why")
    assert str(refusal.value) == sentence.format(folder=tmp_path)


@pytest.mark.parametrize("below", ["", "a/b"])
def test_error_names_file_in_place_of_folder(below: str, source: Path) -> None:
    folder = source / below
    with pytest.raises(UserError) as refusal, explain_os_errors(folder, "x"):
        folder.mkdir(parents=True, exist_ok=True)
    assert str(refusal.value).startswith(f"x can't be written to {folder} (")
    assert str(refusal.value).endswith(f"): {source} is not a folder, so move it away or name another one.")


def test_errors_without_errno_pass_through() -> None:
    """requests' errors are OSErrors, too."""
    with pytest.raises(OSError, match="the engine"), explain_os_errors(Path("/"), "x"):
        raise OSError("the engine")
