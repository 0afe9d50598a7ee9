"""What `uri` finds on an engine, and what it says where there is nothing."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from berth.ecr.uri import local_image
from berth.images.errors import UserError


def engine(tags: Mapping[str, Any]) -> Any:
    """As much of a Docker client as is asked: images by tag."""

    def get(tag: str) -> Any:
        if tag not in tags:
            raise ImageNotFound("no such image")
        return tags[tag]

    return SimpleNamespace(images=SimpleNamespace(get=get))


def test_an_image_that_is_not_built_says_how_to_build_it() -> None:
    with pytest.raises(UserError) as refusal:
        local_image(engine({}), "train", "cu124")
    assert str(refusal.value) == ("berth-train:cu124 is not built: run `python build.py build train --profile cu124`.")


@pytest.mark.parametrize(("efa", "doubles"), [("1.47.0", []), ("1.47.0+double", ["efa 1.47.0+double"])])
def test_an_image_is_known_by_its_exact_tag_and_its_doubles(efa: str, doubles: list[str]) -> None:
    tags = ["berth-train:cu130", "berth-train:0.1.0-cu130-1a2b", "elsewhere/berth-train:1"]
    image = SimpleNamespace(tags=tags, id="sha256:0", labels={"berth.efa": efa, "berth.smddp": "none"})
    found = local_image(engine({"berth-train:cu130": image}), "train", "cu130")
    assert (found.exact_tag, found.digest, list(found.doubles)) == (tags[1], "sha256:0", doubles)
