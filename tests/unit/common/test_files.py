"""What comes onto the disk comes whole or not at all, whatever strikes and whatever was left there before."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.common.files import exchange, explain_os_errors, link_files, same_content, same_size


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source" / "file.tar.gz"
    made.parent.mkdir()
    made.write_bytes(b"the one that is wanted")
    return made


@pytest.fixture
def context(tmp_path: Path) -> Path:
    made = tmp_path / "context"
    made.mkdir()
    return made


def test_files_are_linked_and_replaced_when_they_differ(source: Path, context: Path) -> None:
    (context / source.name).write_bytes(b"an older one")
    for _ in range(2):
        link_files([source], context, same_content)
    assert (context / source.name).samefile(source)
    assert os.listdir(context) == [source.name]


def test_a_wheel_of_the_same_size_stays(source: Path, context: Path) -> None:
    (context / source.name).write_bytes(b"x" * source.stat().st_size)
    link_files([source], context, same_size)
    assert not (context / source.name).samefile(source)
    (context / source.name).write_bytes(b"torn")
    link_files([source], context, same_size)
    assert (context / source.name).samefile(source)


def test_a_linked_wheel_is_a_file_in_the_context(source: Path, context: Path) -> None:
    """A link would lead nowhere in there. One that an earlier version left is replaced."""
    link = source.parent / "links" / "other.whl"
    link.parent.mkdir()
    link.symlink_to(Path("..") / source.name)
    (context / link.name).symlink_to(source)
    link_files([link], context, same_size)
    assert not (context / link.name).is_symlink()
    assert (context / link.name).samefile(source)


def test_folders_change_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_without_links_it_is_copied(source: Path, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    link_files([source], context, same_content)
    assert (context / source.name).read_bytes() == source.read_bytes()
    assert os.listdir(context) == [source.name]


def no_links(*_: object) -> None:
    raise OSError("no links across file systems")


def test_what_a_killed_process_left_is_not_written_into(
    source: Path, context: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a link to the file that was to be laid there."""
    other = source.with_name("other")
    other.write_bytes(b"not to be touched")
    os.link(other, context / f".{source.name}.{os.getpid()}")
    monkeypatch.setattr(os, "link", no_links)
    link_files([source], context, same_content)
    assert other.read_bytes() == b"not to be touched"
    assert os.listdir(context) == [source.name]


def test_ctrl_c_leaves_nothing_behind(source: Path, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(one: Path, other: Path) -> None:
        shutil.copy(one, other)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        link_files([source], context, same_content)
    assert os.listdir(context) == []


def said(error: OSError, folder: Path) -> str:
    with pytest.raises(UserError) as refusal, explain_os_errors(folder, "x"):
        raise error
    return str(refusal.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said(number: int, tmp_path: Path) -> None:
    assert said(OSError(number, "full"), tmp_path) == (
        f"the disk of {tmp_path} is full, and x does not fit: free some room there, then run the command again."
    )


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    assert said(OSError(errno.EROFS, "Read-only file system"), tmp_path) == (
        f"x can't be written to {tmp_path} (Read-only file system): see that this user may write there."
    )


@pytest.mark.parametrize("below", ["", "a/b"])
def test_what_is_no_folder_is_named(below: str, source: Path) -> None:
    folder = source / below
    with pytest.raises(UserError) as refusal, explain_os_errors(folder, "x"):
        folder.mkdir(parents=True, exist_ok=True)
    assert str(refusal.value).startswith(f"x can't be written to {folder} (")
    assert str(refusal.value).endswith(f"): {source} is no folder, so move it away or name another one.")


def test_an_error_that_is_not_the_disks_passes() -> None:
    """Those of requests are OSErrors as well."""
    with pytest.raises(OSError, match="the engine"), explain_os_errors(Path("/"), "x"):
        raise OSError("the engine")
