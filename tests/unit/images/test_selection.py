"""Selecting an image by profile or by name, and its kind from inherited labels."""

from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from berth.common import labels
from berth.common.errors import UserError
from berth.images.local_image import other_build, own_name
from berth.images.selection import select_image
from tests.doubles.local_image import local_image

LABELS = {
    labels.KIT: "train",
    labels.PROFILE: "cpu",
    f"{labels.SOURCE}.version": "0.1.0",
    f"{labels.SOURCE}.revision": "1a2b3c4d5e6f",
}
ON_GPUS = {**LABELS, labels.PROFILE: "cu130"}
IMAGES: dict[str, tuple[dict[str, str], list[str]]] = {
    "berth-train:cpu": (LABELS, ["berth-train:cpu", "berth-train:build-0.1.0-cpu-1a2b3c4d5e6f", "theirs:1"]),
    "theirs:1": (LABELS, ["berth-train:cpu", "berth-train:build-0.1.0-cpu-1a2b3c4d5e6f", "theirs:1"]),
    "pulled:1": (LABELS, ["127.0.0.1:5000/team/berth-train:build-0.1.0-cpu-1a2b3c4d5e6f", "pulled:1"]),
    "dirty:1": (
        {**LABELS, f"{labels.SOURCE}.revision": "1a2b-dirty"},
        ["127.0.0.1:5000/berth-train:build-0.1.0-cpu-1a2b-dirty-00aa11bb", "dirty:1"],
    ),
    "me/plain:1": ({labels.KIT: "train", labels.PROFILE: "cpu", labels.LEFT_OUT: ""}, ["me/plain:1"]),
    "mytrain": (LABELS, ["mytrain:latest", "berth-train:mine"]),
    "mytrain:1": (LABELS, ["mytrain:1"]),
    "mygpu:1": (ON_GPUS, ["mygpu:1"]),
    "debian:12": ({}, ["debian:12"]),
    "berth-base:bookworm": ({labels.KIT: "base"}, ["berth-base:bookworm"]),
}


def get(name: str) -> Any:
    if name not in IMAGES:
        raise ImageNotFound("no such image")
    inherited, tags = IMAGES[name]
    return SimpleNamespace(id=f"sha256:{name}", labels=inherited, tags=tags, attrs={"Id": f"sha256:{name}"})


CLIENT: Any = SimpleNamespace(images=SimpleNamespace(get=get))


def test_default_image_is_berths_image_of_the_profile() -> None:
    found = select_image(CLIENT, "train", "cpu")
    assert (found.name, found.image, found.profile, found.derived) == ("berth-train:cpu", "train", "cpu", False)


@pytest.mark.parametrize("name", [None, "mytrain:1"])
def test_unknown_profile_is_refused_with_and_without_a_name(name: str | None) -> None:
    with pytest.raises(UserError, match="there is no profile 'cpuu'.*did you mean cpu" if name is None else "cpuu"):
        select_image(CLIENT, "train", "cpuu", name)


@pytest.mark.parametrize(
    ("name", "known_as", "profile", "derived"),
    [
        pytest.param("mytrain:1", "mytrain:1", "cpu", True, id="derived"),
        pytest.param("mytrain", "mytrain:latest", "cpu", True, id="without-a-tag"),
        pytest.param("mygpu:1", "mygpu:1", "cu130", True, id="other-profile"),
        pytest.param("theirs:1", "theirs:1", "cpu", False, id="renamed"),
        pytest.param("pulled:1", "pulled:1", "cpu", False, id="pulled"),
        pytest.param("dirty:1", "dirty:1", "cpu", False, id="pulled-with-digits"),
        pytest.param("me/plain:1", "me/plain:1", "cpu", True, id="plain-docker-build"),
    ],
)
def test_named_image_is_described_by_its_labels(name: str, known_as: str, profile: str, derived: bool) -> None:
    for image in ("train", None):
        found = select_image(CLIENT, image, "cpu", name)
        assert (found.name, found.image, found.profile, found.derived) == (known_as, "train", profile, derived)


@pytest.mark.parametrize(
    ("name", "image", "profile", "message"),
    [
        pytest.param(
            "debian:12",
            "serve",
            "cpu",
            "debian:12 was not built FROM one of berth's images (they have the labels berth.kit and berth.profile): "
            "begin its Dockerfile with `FROM berth-serve:cpu`, and build it again.",
            id="other-base",
        ),
        pytest.param(
            "berth-base:bookworm",
            None,
            "cpu",
            "berth-base:bookworm was not built FROM one of berth's images (they have the labels berth.kit and "
            "berth.profile): begin its Dockerfile with `FROM berth-train:cpu`, and build it again.",
            id="only-the-base",
        ),
        pytest.param(
            "mytrain:1",
            "serve",
            "cpu",
            "mytrain:1 was built FROM berth-train, but this command needs berth-serve: name another image.",
            id="other-image",
        ),
        pytest.param(
            "mytrain:1",
            "train",
            "cu130",
            "mytrain:1 was built FROM the profile cpu, not cu130: leave out --profile, the image's label names it.",
            id="other-profile-requested",
        ),
        pytest.param(
            "mytrian:1",
            "train",
            "cpu",
            "there is no image mytrian:1 here: give one that `docker images` lists.",
            id="missing",
        ),
        pytest.param(
            None,
            "train",
            "cu124",
            "there is no image berth-train:cu124 here: build it with `python build.py build train --profile cu124`.",
            id="not-built",
        ),
    ],
)
def test_unusable_image_is_refused(name: str | None, image: str | None, profile: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        select_image(CLIENT, image, profile, name)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("name", "repository", "tag"),
    [
        ("mytrain:1", "mytrain", "1"),
        ("team/mytrain:1", "team/mytrain", "1"),
        ("127.0.0.1:5000/mytrain:1", "mytrain", "1"),
        ("localhost/team/mytrain:1", "team/mytrain", "1"),
        ("111122223333.dkr.ecr.eu-west-1.amazonaws.com/mytrain:1.0", "mytrain", "1.0"),
        ("sha256:1a2b3c4d", "", ""),
        ("1a2b3c4d", "", ""),
        ("localhost:5000/mytrain", "", ""),
    ],
)
def test_own_name(name: str, repository: str, tag: str) -> None:
    assert own_name(name) == (repository, tag)


@pytest.mark.parametrize(
    ("revision", "checkout", "message"),
    [("1a2b", "1a2b", False), ("1a2b", "3c4d", True), (labels.NO_REVISION, "3c4d", False), ("1a2b", "none", False)],
)
def test_other_build_warns_if_both_revisions_are_known(revision: str, checkout: str, message: bool) -> None:
    image = local_image({f"{labels.SOURCE}.revision": revision})
    assert bool(other_build(image, checkout)) == message
