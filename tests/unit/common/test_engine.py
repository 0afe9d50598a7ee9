"""Which Docker client drives BuildKit, and images that the engine has not."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound, NullResource

from berth.common.engine import drives_buildkit, find_client, find_image
from berth.common.errors import UserError


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
    assert drives_buildkit(version, lambda: buildx) is drives


def client(folder: Path, version: str) -> Path:
    folder.mkdir()
    path = folder / "docker"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Docker version {version}, build 0" && exit 0\nexit 1\n')
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


def fake_engine(error: Exception) -> Any:
    """Refuses every image."""

    def get(name: str) -> Any:
        raise error

    return SimpleNamespace(images=SimpleNamespace(get=get))


@pytest.mark.parametrize(
    ("name", "what_to_do"),
    [
        ("berth-serve:cu130", "build it with `python build.py build serve --profile cu130`."),
        ("berth-train:cpu", "build it with `python build.py build train --profile cpu`."),
        ("berth-train:cu999", "give one that `docker images` lists."),
        ("berth-train:build-0.1.0-cpu-1a2b3c4d5e6f", "give one that `docker images` lists."),
        ("berth-train", "give one that `docker images` lists."),
        ("ghcr.io/berth-train:cpu", "give one that `docker images` lists."),
        ("nonsense", "give one that `docker images` lists."),
    ],
)
def test_an_image_that_is_not_there_is_named_with_the_command_that_builds_it(name: str, what_to_do: str) -> None:
    with pytest.raises(UserError) as refusal:
        find_image(fake_engine(ImageNotFound("no such image")), name, ["cpu", "cu130"])
    assert str(refusal.value) == f"there is no image {name} here: {what_to_do}"


@pytest.mark.parametrize(
    ("name", "error"),
    [("B", APIError("400", explanation="invalid reference format")), ("", NullResource("no id"))],
)
def test_what_is_no_name_of_an_image(name: str, error: Exception) -> None:
    with pytest.raises(UserError) as refusal:
        find_image(fake_engine(error), name)
    assert str(refusal.value) == f"{name!r} is no image: give the name, the tag or the id of one that is here."
