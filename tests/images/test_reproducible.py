"""Two builds of one checkout, the second without the build cache, have the same packages and files.

The first is the image under test, the second the one that test_secrets.py searches for canaries. Both have the same
base and locks. If Debian's archive changed in between, the failure says so.
"""

import docker
import pytest

from berth.images.inspect import diff
from berth.images.pins import pins

pytestmark = pytest.mark.nightly
PARTS = pins.FILE_PARTS["train"]


@pytest.fixture(scope="session")
def difference(
    canary_image: str, client: docker.DockerClient, profile: pins.Profile, tmp_path_factory: pytest.TempPathFactory
) -> diff.Difference:
    """The difference between the image under test and a second build of the checkout."""
    labels = client.images.get(canary_image).labels
    first = f"berth-{labels['berth.kit']}:{profile.name}"
    first_labels = client.images.get(first).labels
    file_parts = [part for part in PARTS if first_labels.get(f"berth.{part}", pins.NONE) != pins.NONE]
    if file_parts:
        pytest.skip(f"{first} contains {', '.join(file_parts)}, which the second build omits")
    before = diff.inspect_image(client, first)
    return diff.compare(before, diff.inspect_image(client, canary_image, cache=tmp_path_factory.mktemp("contents")))


def test_two_builds_have_the_same_packages(difference: diff.Difference) -> None:
    changes = {f"{each.kind} {each.name}: {each.before} → {each.after}" for each in diff.unexplained(difference)[0]}
    moved = {change for change in changes if change.startswith("deb ")}
    assert moved == set(), f"Debian's archive has changed since {difference.before} was built: build it again"
    assert changes == set()


def test_two_builds_have_the_same_files(difference: diff.Difference) -> None:
    changes = [f"{each.how} /{each.path} ({each.made_by})" for each in diff.unexplained(difference)[1]]
    assert changes == [], f"{difference.before} was built from another checkout, or its build is not reproducible"
