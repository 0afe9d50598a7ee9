"""Which blobs of a promoted image go, and how."""

import pytest

from berth.ecr.promote import missing_blobs
from berth.ecr.registry.manifest import DOCKER_LAYER, Descriptor

SMALL, LARGE, MIDDLE = (
    Descriptor(DOCKER_LAYER, "sha256:" + name * 64, size) for name, size in zip("abc", (1, 9, 5), strict=True)
)


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (set(), (LARGE, MIDDLE, SMALL)),
        ({LARGE.digest}, (MIDDLE, SMALL)),
        ({LARGE.digest, MIDDLE.digest, SMALL.digest}, ()),
    ],
)
def test_what_is_there_stays_and_the_largest_goes_first(there: set[str], missing: tuple[Descriptor, ...]) -> None:
    assert missing_blobs((SMALL, LARGE, MIDDLE), there) == missing
