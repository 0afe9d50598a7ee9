"""The cache of JSON documents between commands."""

import os
import time
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.common.kept import Kept


def test_stored_document_is_loaded_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "cache", 2)
    assert kept.load("sha256:0") is None
    kept.store("sha256:0", {"size": 1})
    assert Kept(tmp_path / "cache", 2).load("sha256:0") == {"size": 1}
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("malformed", ["", "half {"])
def test_malformed_document_counts_as_missing(malformed: str, tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2)
    kept.store("a", 1)
    next(tmp_path.iterdir()).write_text(malformed)
    assert kept.load("a") is None


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_most_recently_used_documents_are_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2)
    for number, key in enumerate("ab"):
        kept.store(key, key)
        age(tmp_path / f"{key}.json", 60 - number)
    assert kept.load("a") == "a"
    kept.store("c", "c")
    assert [kept.load(key) for key in "abc"] == ["a", None, "c"]


def test_error_for_cache_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"can't be written to .*/cache is not a folder, so move"):
        Kept(tmp_path / "cache" / "sizes", 2).store("sha256:0", {})
