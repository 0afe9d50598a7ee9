"""What commands keep for the next one."""

import os
import time
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.common.kept import Kept


def test_a_document_is_there_for_the_next_one_and_nothing_beside_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "cache", 2)
    assert kept.load("sha256:0") is None
    kept.store("sha256:0", {"size": 1})
    assert Kept(tmp_path / "cache", 2).load("sha256:0") == {"size": 1}
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("spoiled", ["", "half {"])
def test_what_a_full_disk_has_left_is_nothing(spoiled: str, tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2)
    kept.store("a", 1)
    next(tmp_path.iterdir()).write_text(spoiled)
    assert kept.load("a") is None


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_those_used_last_stay(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2)
    for number, key in enumerate("ab"):
        kept.store(key, key)
        age(tmp_path / f"{key}.json", 60 - number)
    assert kept.load("a") == "a"
    kept.store("c", "c")
    assert [kept.load(key) for key in "abc"] == ["a", None, "c"]


def test_an_answer_gets_too_old_however_often_it_is_read(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2, seconds=60)
    kept.store("a", 1)
    age(tmp_path / "a.json", 50)
    assert kept.load("a") == 1
    age(tmp_path / "a.json", 70)
    assert kept.load("a") is None


def test_a_cache_that_is_no_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"can't be written to .*/cache is no folder, so move"):
        Kept(tmp_path / "cache" / "sizes", 2).store("sha256:0", {})
