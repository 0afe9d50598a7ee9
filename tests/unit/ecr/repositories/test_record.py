"""The record of pushes, dist/images.json."""

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The record's path, whose folder is missing."""
    return tmp_path / "dist" / "images.json"


def test_image_uri_has_the_digest() -> None:
    assert ENTRY.image_uri == "127.0.0.1:5000/berth-train@sha256:1"
    assert ENTRY.tagged_uri == "127.0.0.1:5000/berth-train:0.1.0-cpu-1a2b"


def test_later_push_replaces_the_earlier_entry(file: Path) -> None:
    other = replace(ENTRY, image="serve", repository="berth-serve")
    keep([ENTRY, other], file)
    later = replace(ENTRY, digest="sha256:9", bill=None)
    keep([later], file)
    assert load(file) == [other, later]
    assert json.loads(file.read_text())["images"][1]["image_uri"] == later.image_uri
    assert sorted(path.name for path in file.parent.iterdir()) == [".lock", "images.json"]


def test_names_of_this_machine_count_as_one_host(file: Path) -> None:
    names = ("127.0.0.1:5000", "[::1]:5000", "localhost:5000", "localhost:5001", "h:5000", "localhost.example:5000")
    for host in names:
        keep([replace(ENTRY, host=host)], file)
    assert [entry.host for entry in load(file)] == list(names[2:])


def test_moved_tag_is_removed_from_other_entries(file: Path) -> None:
    elsewhere = replace(ENTRY, repository="prod/y")
    serve = replace(ENTRY, image="serve", digest="sha256:9", tags=("0.1.0-cpu-1a2b", "rc"))
    keep([ENTRY, elsewhere, serve], file)
    keep([replace(serve, host="localhost:5000", tags=("stable",))], file)
    assert [(entry.image, entry.repository, entry.tags) for entry in load(file)] == [
        ("train", "berth-train", ("0.1.0-cpu-1a2b",)),
        ("train", "prod/y", ENTRY.tags),
        ("serve", "berth-train", ("stable", "0.1.0-cpu-1a2b", "rc")),
    ]


def test_check_reports_unreadable_and_unwritable_records(tmp_path: Path) -> None:
    check(tmp_path / "dist" / "images.json")
    assert load(tmp_path / "dist" / "images.json") == []
    with pytest.raises(UserError, match="can't be read as the record"):
        load(tmp_path)  # a folder
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        check(tmp_path / "file" / "images.json")
    (tmp_path / "images.json").write_text("no record")
    with pytest.raises(UserError, match=r"can't be read as the record"):
        check(tmp_path / "images.json")


def test_parallel_pushes_are_all_recorded(file: Path) -> None:
    with get_context("spawn").Pool(4) as pool:
        pool.starmap(keep, [([replace(ENTRY, host=f"h{number}:1")], file) for number in range(12)])
    assert len(load(file)) == 12


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"images": [{"image": "train"}]}', b'{"images": [1]}', b'{"images": {}}', b"\xff\x00"]
)
def test_malformed_record_is_refused(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"remove it, and push again"):
        load(file)


def test_keep_copy_adds_the_place_of_a_recorded_image(file: Path) -> None:
    keep([ENTRY], file)
    keep_copy(ENTRY.digest, "127.0.0.1:5001", "prod-train", ["1.0"], file)
    first, copy = load(file)
    assert first == ENTRY
    assert copy == replace(ENTRY, host="127.0.0.1:5001", repository="prod-train", tags=("1.0",), pushed=copy.pushed)
    assert copy.pushed > ENTRY.pushed


def test_keep_copy_ignores_unrecorded_images(file: Path) -> None:
    keep([ENTRY], file)
    keep_copy("sha256:9", "127.0.0.1:5001", "prod-train", ["1.0"], file)
    assert load(file) == [ENTRY]


def test_copy_without_tag_has_uri_by_digest(file: Path) -> None:
    keep([ENTRY], file)
    keep_copy(ENTRY.digest, "127.0.0.1:5001", "prod-train", [], file)
    assert load(file)[1].tags == ()
    assert load(file)[1].tagged_uri == load(file)[1].image_uri == "127.0.0.1:5001/prod-train@sha256:1"


def test_repeated_push_keeps_the_tags_of_the_same_image_only(file: Path) -> None:
    keep([ENTRY], file)
    keep([replace(ENTRY, tags=("0.1.0-cpu-1a2b", "rc"))], file)
    assert load(file)[0].tags == ("0.1.0-cpu-1a2b", "rc", "stable")
    keep([replace(ENTRY, digest="sha256:9", tags=("0.1.0-cpu-5e6f",))], file)
    assert load(file)[0].tags == ("0.1.0-cpu-5e6f",)
