"""Links in a folder that goes into a container."""

from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.local import opt_ml
from berth.local.links import check_links, without_links


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """A folder with one plain file, and outside it a store as DVC, git-annex and the Hub's cache have one."""
    folder = tmp_path / "data/train"
    (folder / "deep").mkdir(parents=True)
    (folder / "plain.json").write_text("plain")
    (tmp_path / "store/folder").mkdir(parents=True)
    (tmp_path / "store/ab12").write_text("stored")
    (tmp_path / "store/folder/cd34").write_text("stored deeper")
    return folder


@pytest.mark.parametrize("absolute", [True, False])
def test_what_links_lead_to_is_copied(channel: Path, tmp_path: Path, absolute: bool) -> None:
    store = tmp_path / "store" if absolute else Path("../../store")
    (channel / "a.json").symlink_to(store / "ab12")
    (channel / "linked").symlink_to(store / "folder")
    check_links(channel, "the channel train")
    copy = without_links(channel, tmp_path / "copy")
    assert copy == tmp_path / "copy"
    found = {file.relative_to(copy).as_posix(): file for file in copy.rglob("*") if not file.is_dir()}
    assert {name: file.read_text() for name, file in found.items()} == {
        "plain.json": "plain",
        "a.json": "stored",
        "linked/cd34": "stored deeper",
    }
    assert not any(path.is_symlink() for path in copy.rglob("*"))


def test_a_folder_whose_links_stay_in_it_is_taken_as_it_is(channel: Path, tmp_path: Path) -> None:
    (channel / "deep/again.json").symlink_to("../plain.json")
    assert without_links(channel, tmp_path / "copy") == channel
    (channel / "deep/absolute.json").symlink_to(channel / "plain.json")
    assert (without_links(channel, tmp_path / "copy") / "deep/absolute.json").read_text() == "plain"


def test_a_link_through_the_outside_does_not_stay(channel: Path, tmp_path: Path) -> None:
    (tmp_path / "back").symlink_to("data/train/plain.json")
    (channel / "round.json").symlink_to("../../back")
    assert (without_links(channel, tmp_path / "copy") / "round.json").read_text() == "plain"


def test_links_to_missing_files_are_named_before_a_container_starts(channel: Path, tmp_path: Path) -> None:
    (channel / "gone.json").symlink_to("../../store/ef56")
    (channel / ".hidden").symlink_to("nowhere")
    (tmp_path / "store/folder/broken").symlink_to("/nowhere")
    (channel / "linked").symlink_to("../../store/folder")
    with pytest.raises(UserError) as refused:
        opt_ml.find_channels(channel.parent)
    for fact in ("the channel train", "gone.json -> ../../store/ef56", "linked/broken -> /nowhere", "dvc pull"):
        assert fact in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_channel_that_is_a_dangling_link_is_no_file_beside_the_channels(channel: Path) -> None:
    (channel.parent / "validation").symlink_to("/nowhere")
    with pytest.raises(UserError, match="the channel validation is a link to /nowhere"):
        opt_ml.find_channels(channel.parent)


def test_a_link_to_a_folder_that_it_is_in_is_refused(channel: Path) -> None:
    (channel / "deep/loop").symlink_to("..")
    with pytest.raises(UserError, match="deep/loop"):
        check_links(channel, "the channel train")
