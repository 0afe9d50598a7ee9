"""Which blobs of a promoted image go, and how."""

import pytest

from berth.ecr.promote import Plan, plan
from berth.ecr.registry.manifest import DOCKER_LAYER, Descriptor

SMALL, LARGE, MIDDLE = (
    Descriptor(DOCKER_LAYER, "sha256:" + name * 64, size) for name, size in zip("abc", (1, 9, 5), strict=True)
)


@pytest.mark.parametrize(
    ("there", "same_registry", "planned"),
    [
        (set(), False, Plan((), (), (LARGE, MIDDLE, SMALL))),
        (set(), True, Plan((), (LARGE, MIDDLE, SMALL), ())),
        ({LARGE.digest}, False, Plan((LARGE,), (), (MIDDLE, SMALL))),
        ({LARGE.digest, MIDDLE.digest, SMALL.digest}, True, Plan((SMALL, LARGE, MIDDLE), (), ())),
    ],
)
def test_what_is_there_stays_and_the_largest_goes_first(there: set[str], same_registry: bool, planned: Plan) -> None:
    assert plan((SMALL, LARGE, MIDDLE), there, same_registry=same_registry) == planned
