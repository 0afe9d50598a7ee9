"""Image names that an engine accepts."""

import pytest

from berth.common.image_names import is_reference
from berth.images.pins import pins_file

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "name",
    [
        "debian",
        "debian:bookworm-slim",
        f"debian@{DIGEST}",
        f"debian:12@{DIGEST}",
        "team/base_image.x:1.0_a",
        "localhost:5000/base:1",
        "[::1]:5000/base",
        "111122223333.dkr.ecr.eu-west-1.amazonaws.com/team/base:1",
        "3783cc01769c",
        pins_file.load().base_image,
        pins_file.load().imported_base,
    ],
)
def test_is_reference_accepts(name: str) -> None:
    assert is_reference(name)


@pytest.mark.parametrize(
    "name",
    ["", "no such:::image", "Debian", "debian:", "debian:a b", "debian@sha256:12", "-debian", "a//b", "a/", "/a", "é"],
)
def test_is_reference_rejects(name: str) -> None:
    assert not is_reference(name)
