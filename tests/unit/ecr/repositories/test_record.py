"""The record of what was pushed."""

import json
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.ecr.repositories.record import Pushed, check, keep, keep_copy, load

ENTRY = Pushed(
    image="train",
    profile="cpu",
    host="127.0.0.1:5000",
    repository="berth-train",
    digest="sha256:1",
    config="sha256:2",
    local_id="sha256:2",
    tags=("0.1.0-cpu-1a2b", "stable"),
    version="0.1.0",
    revision="1a2b",
    pins={"torch": "2.13.0+cpu"},
    compressed=10,
    size=30,
    built="2026-11-21T00:00:00Z",
    pushed="2026-11-21T01:00:00Z",
    bill={"file": "berth-train.cdx.json", "digest": "sha256:3"},
)


def test_the_uri_is_pinned_by_digest() -> None:
    assert ENTRY.image_uri == "127.0.0.1:5000/berth-train@sha256:1"
    assert ENTRY.tagged_uri == "127.0.0.1:5000/berth-train:0.1.0-cpu-1a2b"


def test_what_is_kept_is_read_back_and_a_later_push_takes_the_place_of_an_earlier(tmp_path: Path) -> None:
    file = tmp_path / "dist" / "images.json"
    other = replace(ENTRY, image="serve", repository="berth-serve")
    keep([ENTRY, other], file)
    later = replace(ENTRY, digest="sha256:9", bill=None)
    keep([later], file)
    assert load(file) == [other, later]
    assert json.loads(file.read_text())["images"][1]["image_uri"] == later.image_uri
    assert sorted(path.name for path in file.parent.iterdir()) == [".lock", "images.json"]


def test_this_machine_by_another_name_is_the_same_place(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    names = ("127.0.0.1:5000", "[::1]:5000", "localhost:5000", "localhost:5001", "h:5000", "localhost.example:5000")
    for host in names:
        keep([replace(ENTRY, host=host)], file)
    assert [entry.host for entry in load(file)] == list(names[2:])


def test_a_tag_that_moves_to_another_image_is_no_more_the_first_ones(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    elsewhere = replace(ENTRY, repository="prod/y")
    serve = replace(ENTRY, image="serve", digest="sha256:9", tags=("0.1.0-cpu-1a2b", "rc"))
    keep([ENTRY, elsewhere, serve], file)
    keep([replace(serve, host="localhost:5000", tags=("stable",))], file)
    assert [(entry.image, entry.repository, entry.tags) for entry in load(file)] == [
        ("train", "berth-train", ("0.1.0-cpu-1a2b",)),
        ("train", "prod/y", ENTRY.tags),
        ("serve", "berth-train", ("stable", "0.1.0-cpu-1a2b", "rc")),
    ]


def test_a_folder_in_the_place_of_the_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"can't be read as the record"):
        load(tmp_path)


def test_a_record_that_can_not_be_written_or_read_is_said_before_a_push(tmp_path: Path) -> None:
    check(tmp_path / "dist" / "images.json")
    assert load(tmp_path / "dist" / "images.json") == []
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        check(tmp_path / "file" / "images.json")
    (tmp_path / "images.json").write_text("no record")
    with pytest.raises(UserError, match=r"can't be read as the record"):
        check(tmp_path / "images.json")


def test_pushes_at_the_same_time_all_get_in(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    with get_context("spawn").Pool(4) as pool:
        pool.starmap(keep, [([replace(ENTRY, host=f"h{number}:1")], file) for number in range(12)])
    assert len(load(file)) == 12


def test_nothing_was_pushed_yet(tmp_path: Path) -> None:
    assert load(tmp_path / "images.json") == []


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"images": [{"image": "train"}]}', b'{"images": [1]}', b'{"images": {}}', b"\xff\x00"]
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "images.json"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"remove it, and push again"):
        load(file)


def test_a_copy_of_what_is_on_record_gets_there_too(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    keep([ENTRY], file)
    keep_copy(ENTRY.digest, "127.0.0.1:5001", "prod-train", ["1.0"], file)
    first, copy = load(file)
    assert first == ENTRY
    assert copy == replace(ENTRY, host="127.0.0.1:5001", repository="prod-train", tags=("1.0",), pushed=copy.pushed)
    assert copy.pushed > ENTRY.pushed


def test_a_copy_of_an_image_that_was_pushed_elsewhere_is_not_on_record(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    keep([ENTRY], file)
    keep_copy("sha256:9", "127.0.0.1:5001", "prod-train", ["1.0"], file)
    assert load(file) == [ENTRY]


def test_a_copy_without_a_tag_is_known_by_its_digest(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    keep([ENTRY], file)
    keep_copy(ENTRY.digest, "127.0.0.1:5001", "prod-train", [], file)
    assert load(file)[1].tags == ()
    assert load(file)[1].tagged_uri == load(file)[1].image_uri == "127.0.0.1:5001/prod-train@sha256:1"


def test_tags_of_the_same_image_stay_and_those_of_an_earlier_one_do_not(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    keep([ENTRY], file)
    keep([replace(ENTRY, tags=("0.1.0-cpu-1a2b", "rc"))], file)
    assert load(file)[0].tags == ("0.1.0-cpu-1a2b", "rc", "stable")
    keep([replace(ENTRY, digest="sha256:9", tags=("0.1.0-cpu-5e6f",))], file)
    assert load(file)[0].tags == ("0.1.0-cpu-5e6f",)
