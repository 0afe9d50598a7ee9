"""Which Docker client drives BuildKit."""

import os
from pathlib import Path

import pytest

from berth.images.engine import drives_buildkit, find_client
from berth.images.errors import UserError


@pytest.mark.parametrize(
    ("version", "buildx", "drives"),
    [
        ("20.10.24+dfsg1", False, True),
        ("18.06.1", False, False),
        ("28.2.2", False, False),
        ("28.2.2", True, True),
        ("", True, False),
    ],
)
def test_drives_buildkit(version: str, buildx: bool, drives: bool) -> None:
    assert drives_buildkit(version, buildx) is drives


def client(folder: Path, version: str) -> Path:
    folder.mkdir()
    path = folder / "docker"
    path.write_text(f'#!/bin/sh\n[ "$1" = version ] && echo {version} && exit 0\nexit 1\n')
    path.chmod(0o755)
    return path


def test_a_client_without_buildx_is_passed_over(tmp_path: Path) -> None:
    client(tmp_path / "new", "28.2.2")
    old = client(tmp_path / "old", "20.10.24")
    assert find_client(f"{tmp_path / 'new'}{os.pathsep}{tmp_path / 'old'}") == old


def test_without_one_the_sentence_names_what_was_found(tmp_path: Path) -> None:
    found = client(tmp_path / "new", "28.2.2")
    with pytest.raises(UserError, match="drives BuildKit") as refusal:
        find_client(str(tmp_path / "new"))
    assert f"{found} (28.2.2)" in str(refusal.value)


def test_without_any_client(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no `docker` command on PATH"):
        find_client(str(tmp_path))
