"""Links in a folder that is mounted into a container."""

from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.local import opt_ml
from berth.local.links import check_links, without_links


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """A folder with one plain file; outside it is a store, like that of DVC, git-annex or the Hub's cache."""
    folder = tmp_path / "data/train"
    (folder / "deep").mkdir(parents=True)
    (folder / "plain.json").write_text("plain")
    (tmp_path / "store/folder").mkdir(parents=True)
    (tmp_path / "store/ab12").write_text("stored")
    (tmp_path / "store/folder/cd34").write_text("stored deeper")
    return folder


@pytest.mark.parametrize("absolute", [True, False])
def test_targets_of_links_are_copied(channel: Path, tmp_path: Path, absolute: bool) -> None:
    store = tmp_path / "store" if absolute else Path("../../store")
    (channel / "a.json").symlink_to(store / "ab12")
    (channel / "linked").symlink_to(store / "folder")
    check_links(channel, "the channel train")
    copy = without_links(channel, tmp_path / "copy")
    assert copy == tmp_path / "copy"
    copied = {file.relative_to(copy).as_posix(): file for file in copy.rglob("*") if not file.is_dir()}
    assert {name: file.read_text() for name, file in copied.items()} == {
        "plain.json": "plain",
        "a.json": "stored",
        "linked/cd34": "stored deeper",
    }
    assert not any(path.is_symlink() for path in copy.rglob("*"))


def test_only_absolute_and_outer_links_cause_a_copy(channel: Path, tmp_path: Path) -> None:
    (channel / "deep/again.json").symlink_to("../plain.json")
    assert without_links(channel, tmp_path / "copy") == channel
    (channel / "deep/absolute.json").symlink_to(channel / "plain.json")
    assert (without_links(channel, tmp_path / "copy") / "deep/absolute.json").read_text() == "plain"


def test_link_via_outside_folder_is_copied(channel: Path, tmp_path: Path) -> None:
    (tmp_path / "back").symlink_to("data/train/plain.json")
    (channel / "round.json").symlink_to("../../back")
    assert (without_links(channel, tmp_path / "copy") / "round.json").read_text() == "plain"


def test_error_lists_dangling_links_of_a_channel(channel: Path, tmp_path: Path) -> None:
    (channel / "gone.json").symlink_to("../../store/ef56")
    (channel / ".hidden").symlink_to("nowhere")
    (tmp_path / "store/folder/broken").symlink_to("/nowhere")
    (channel / "linked").symlink_to("../../store/folder")
    with pytest.raises(UserError) as refused:
        opt_ml.find_channels(channel.parent)
    for fact in ("the channel train", "gone.json -> ../../store/ef56", "linked/broken -> /nowhere", "dvc pull"):
        assert fact in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_error_for_channel_that_is_a_dangling_link(channel: Path) -> None:
    (channel.parent / "validation").symlink_to("/nowhere")
    with pytest.raises(UserError, match="the channel validation is a link to /nowhere"):
        opt_ml.find_channels(channel.parent)


def test_error_for_link_to_parent_folder(channel: Path) -> None:
    (channel / "deep/loop").symlink_to("..")
    with pytest.raises(UserError, match="deep/loop"):
        check_links(channel, "the channel train")
