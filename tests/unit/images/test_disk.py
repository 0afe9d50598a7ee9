"""What comes onto the disk comes whole or not at all, whatever strikes and whatever was left there before."""

import os
import shutil
from pathlib import Path

import pytest

from berth.images import disk


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
        disk.link([source], context, disk.same_content)
    assert (context / source.name).samefile(source)
    assert os.listdir(context) == [source.name]


def test_a_wheel_of_the_same_size_stays(source: Path, context: Path) -> None:
    (context / source.name).write_bytes(b"x" * source.stat().st_size)
    disk.link([source], context, disk.same_size)
    assert not (context / source.name).samefile(source)
    (context / source.name).write_bytes(b"torn")
    disk.link([source], context, disk.same_size)
    assert (context / source.name).samefile(source)


def test_without_links_it_is_copied(source: Path, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    disk.link([source], context, disk.same_content)
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
    disk.link([source], context, disk.same_content)
    assert other.read_bytes() == b"not to be touched"
    assert os.listdir(context) == [source.name]


def test_ctrl_c_leaves_nothing_behind(source: Path, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(one: Path, other: Path) -> None:
        shutil.copy(one, other)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.link([source], context, disk.same_content)
    assert os.listdir(context) == []
