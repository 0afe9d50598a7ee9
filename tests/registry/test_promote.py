"""Promotions from one registry to another: digests, tags, bytes on the wire, interruptions and refused images."""

import threading
from collections.abc import Callable

import pytest

from berth.common import labels
from berth.ecr.promote import Promoted, copy_image, plan_copy, tag_lines
from berth.ecr.push.events import LayerState, ShowLayer, short_id
from berth.ecr.registry import referrers, upload
from berth.ecr.registry.challenge import Credentials
from berth.ecr.registry.client import Registry as Client
from berth.ecr.repositories.repository_client import RepositoryClient
from tests.registry import made_images
from tests.registry.conftest import CREDENTIALS, MakeClient, MakeProxy, MakeRegistry, Waits, no_login, refusal
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Registry

SIZES = (300_000, 900_000, 20_000, 500_000, 1_000)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART", 250_000)


@pytest.fixture
def image() -> made_images.Image:
    return made_images.image(SIZES)


@pytest.fixture
def target(make_registry: MakeRegistry) -> Registry:
    """The target of promotions, which requires a login."""
    return make_registry(credentials=CREDENTIALS)


@pytest.fixture
def target_proxy(target: Registry, make_proxy: MakeProxy) -> FaultProxy:
    """A fault proxy in front of the target."""
    return make_proxy(target)


def login(*, renew: bool) -> Credentials:
    return CREDENTIALS


def at(client: Client, repository: str) -> RepositoryClient:
    return RepositoryClient(client, repository, no_login)


def copy(
    source: RepositoryClient,
    reference: str,
    target: RepositoryClient,
    tags: list[str],
    say: Callable[[str], None] = lambda _: None,
    show: ShowLayer = lambda place, state: None,
) -> Promoted:
    """Plans and copies, as `promote` does."""
    return copy_image(source, target, plan_copy(source, reference, target, tags), say=say, show=show)


def total(image: made_images.Image) -> int:
    return sum(len(content) for content in image.blobs.values())


def test_promote_copies_image_tags_and_documents(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    digest = made_images.put(client, "a/b", "1", image)
    referrers.upload_blobs(client, "a/b", b"a bill of materials")
    bill = referrers.attach(client, "a/b", image.manifest, b"a bill of materials").digest
    goal = client_of(target_proxy, login)
    lines: list[str] = []
    states: dict[str, list[LayerState]] = {}
    lock = threading.Lock()

    def show(place: str, state: LayerState) -> None:
        with lock:
            states.setdefault(state.layer, []).append(state)

    promoted = copy(at(client, "a/b"), "1", at(goal, "team/c"), ["1", "latest"], say=lines.append, show=show)
    documents = len(b"a bill of materials") + len(b"{}")
    assert promoted == Promoted(digest, total(image) + documents, 0, ("1", "latest"))
    assert target_proxy.uploaded() == total(image) + documents
    for name in (digest, "1", "latest"):
        assert goal.manifest("team/c", name) == image.manifest
    assert made_images.check(goal, "team/c", "1", image).digest == digest
    assert {key: goal.blob("team/c", key) for key in image.blobs} == dict(image.blobs)
    (document,) = referrers.attached(goal, "team/c", digest)
    assert document.digest == bill
    assert made_images.read_document(goal, "team/c", document) == b"a bill of materials"
    for key, content in image.blobs.items():
        *_, whole, end = states[short_id(key)]
        assert (whole.current, whole.total, end.end) == (len(content), len(content), "sent")
    assert lines[0].startswith(f"{target_proxy.host}/team/c: 0 of {len(image.blobs) + 2} blobs are there, ")


def test_promotion_within_a_registry_mounts_blobs(
    proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    client = client_of(proxy)
    digest = made_images.put(client, "a/b", "1", image)
    proxy.forget()
    assert copy(at(client, "a/b"), "1", at(client, "c"), ["1"]) == Promoted(digest, 0, total(image), ("1",))
    assert proxy.uploaded() == 0
    assert made_images.check(client, "c", "1", image).digest == digest
    # Within one repository only the tag is new.
    assert copy(at(client, "a/b"), "1", at(client, "a/b"), ["2"]) == Promoted(digest, 0, total(image), ("2",))
    assert client.manifest("a/b", "2") == image.manifest


CPU, CU130 = ({labels.KIT: "train", labels.PROFILE: profile} for profile in ("cpu", "cu130"))
COPIED = made_images.image(labels=CU130)
BUILD = "build-0.1.0-cpu-1a2b3c4d5e6f"


@pytest.mark.parametrize(
    ("tag", "holder", "own", "line"),
    [
        pytest.param(
            "1.0", CPU, "1.0-cu130", "the image of profile cpu; this image is tagged 1.0-cu130", id="other-profile"
        ),
        pytest.param(BUILD, CU130, f"{BUILD}-{str(COPIED.manifest.config_digest)[7:15]}", "", id="other-build"),
    ],
)
def test_copy_gets_its_own_tag_if_another_image_has_it(
    tag: str, holder: dict[str, str], own: str, line: str, client: Client
) -> None:
    held = made_images.put(client, "c", tag, made_images.image(seed=7, labels=holder))
    digest = made_images.put(client, "a/b", "new", COPIED)
    lines: list[str] = []
    assert copy(at(client, "a/b"), "new", at(client, "c"), [tag], say=lines.append).tags == (own,)
    assert any(line in each for each in lines)
    found = {name: manifest.digest for name in (tag, own) if (manifest := client.manifest("c", name))}
    assert found == {tag: held, own: digest}


def test_refused_mount_is_replaced_by_a_copy(
    proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    client = client_of(proxy)
    digest = made_images.put(client, "a/b", "1", image)
    proxy.forget()
    proxy.answer(403, method="POST", path="mount=", times=99)
    assert copy(at(client, "a/b"), "1", at(client, "c"), ["1"]) == Promoted(digest, total(image), 0, ("1",))
    assert made_images.check(client, "c", "1", image).digest == digest


def test_moving_tag_is_printed(client: Client, image: made_images.Image) -> None:
    tag = "1.0"
    held = made_images.put(client, "c", tag, made_images.image(seed=7))
    digest = made_images.put(client, "a/b", "1", image)
    lines: list[str] = []
    copy(at(client, "a/b"), "1", at(client, "c"), [tag], say=lines.append)
    assert lines[1:] == [f"{client.host}/c:{tag} will move from {held[:19]}, if the repository lets a tag move"]
    found = client.manifest("c", tag)
    assert found is not None
    assert found.digest == digest


def test_next_promotion_resumes_after_an_error(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image, waits: Waits
) -> None:
    digest = made_images.put(client, "a/b", "1", image)
    goal = client_of(target_proxy, login)
    largest = max(image.manifest.layers, key=lambda layer: layer.size)
    target_proxy.answer(403, method="PUT", path=f"digest=sha256%3A{largest.digest[7:]}", times=99)
    assert "denies the push of" in refusal(lambda: copy(at(client, "a/b"), "1", at(goal, "c"), ["1"]))
    assert goal.manifest("c", "1") is None
    present = {key for key in image.blobs if goal.blob_size("c", key) is not None}
    assert largest.digest not in present
    target_proxy.forget()
    promoted = copy(at(client, "a/b"), "1", at(goal, "c"), ["1"])
    bytes_present = sum(len(image.blobs[key]) for key in present)
    assert promoted == Promoted(digest, total(image) - bytes_present, bytes_present, ("1",))
    assert target_proxy.uploaded() == total(image) - bytes_present
    assert made_images.check(goal, "c", "1", image).digest == digest


def test_promotion_survives_faults_on_both_sides(
    proxy: FaultProxy, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    origin, goal = client_of(proxy), client_of(target_proxy, login)
    digest = made_images.put(origin, "a/b", "1", image)
    proxy.answer(503, method="GET", path="blobs/", skip=1, times=2)
    target_proxy.answer(429, method="POST", skip=1, times=1, headers={"Retry-After": "1"})
    target_proxy.drop(after=100_000, skip=1, times=2)
    copy(at(origin, "a/b"), "1", at(goal, "c"), ["1"])
    assert made_images.check(goal, "c", "1", image).digest == digest


def test_unusable_or_missing_image_is_not_promoted(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient
) -> None:
    made_images.put(client, "a/b", "other", made_images.image(platform="linux/arm64"))
    made_images.put_index(client, "a/b", "index", made_images.image(oci=True))
    goal = client_of(target_proxy, login)
    assert "the image is for linux/arm64" in refusal(lambda: copy(at(client, "a/b"), "other", at(goal, "c"), ["1"]))
    assert "the manifest is an index" in refusal(lambda: copy(at(client, "a/b"), "index", at(goal, "c"), ["1"]))
    sentence = refusal(lambda: copy(at(client, "a/b"), "othr", at(goal, "c"), ["1"]))
    assert sentence == f"{client.host}/a/b has no image othr, and 2 tags, such as other: give one of them."
    sentence = refusal(lambda: copy(at(client, "no/such"), "1", at(goal, "c"), ["1"]))
    assert sentence == f"{client.host}/no/such has no image 1, and no tag at all: check the repository's name."
    assert target_proxy.requests == []


def test_damaged_blob_of_the_source_is_refused(
    client: Client, registry: Registry, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    made_images.put(client, "a/b", "1", image)
    layer = image.manifest.layers[1]
    (stored,) = registry.storage.glob(f"**/blobs/sha256/*/{layer.digest[7:]}/data")
    stored.write_bytes(bytes(layer.size))
    goal = client_of(target_proxy, login)
    sentence = refusal(lambda: copy(at(client, "a/b"), "1", at(goal, "c"), ["1"]))
    assert f"for {layer.digest}: the content is damaged there" in sentence
    assert goal.blob_size("c", layer.digest) is None
    assert goal.manifest("c", "1") is None


def test_error_for_blob_of_other_size_in_the_target(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    made_images.put(client, "a/b", "1", image)
    layer = image.manifest.layers[1]
    target_proxy.answer(200, method="HEAD", path=f"/c/blobs/{layer.digest}", headers={"Content-Length": "7"})
    sentence = refusal(lambda: copy(at(client, "a/b"), "1", at(client_of(target_proxy, login), "c"), ["1"]))
    assert sentence == (
        f"{target_proxy.host}/c has 7 bytes of {layer.digest}, which has {layer.size}: its storage is damaged, "
        "have the blob removed there."
    )


def test_image_is_stored_by_digest_if_the_tag_is_immutable(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    digest = made_images.put(client, "a/b", "1", image)
    goal = client_of(target_proxy, login)
    body = b'{"errors":[{"code":"TAG_INVALID","message":"the tag is immutable"}]}'
    target_proxy.answer(400, method="PUT", path="manifests/1$", times=9, body=body)
    assert "its tags can't be moved" in refusal(lambda: copy(at(client, "a/b"), "1", at(goal, "c"), ["1"]))
    assert goal.manifest("c", digest) == image.manifest


def test_ctrl_c_stops_a_promotion(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    made_images.put(client, "a/b", "1", image)
    goal = client_of(target_proxy, login)

    def interrupted(place: str, state: LayerState) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(at(client, "a/b"), "1", at(goal, "c"), ["1"], show=interrupted)
    assert goal.manifest("c", "1") is None
    copy(at(client, "a/b"), "1", at(goal, "c"), ["1"])
    assert goal.manifest("c", "1") == image.manifest


def test_image_with_test_double_is_not_promoted(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient
) -> None:
    made_images.put(client, "a/b", "1", made_images.image(labels={"berth.efa": "1.47.0+double"}))
    goal = client_of(target_proxy, login)
    sentence = refusal(lambda: copy(at(client, "a/b"), "1", at(goal, "c"), ["1"]))
    assert "holds a test's double of efa 1.47.0+double: it is for tests, and may not be published" in sentence
    assert target_proxy.uploaded() == 0


def test_dirty_image_is_promoted_only_under_a_build_tag(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient
) -> None:
    revision = {"org.opencontainers.image.revision": "1a2b3c4d5e6f-dirty"}
    tag = "build-0.1.0-cpu-1a2b3c4d5e6f-dirty-00aa11bb"
    digest = made_images.put(client, "a/b", "1", made_images.image(labels=revision))
    goal = client_of(target_proxy, login)
    sentence = refusal(lambda: copy(at(client, "a/b"), "1", at(goal, "c"), ["1.0", tag]))
    assert "contains uncommitted changes, so it can't be tagged 1.0: commit, build and push again" in sentence
    assert target_proxy.uploaded() == 0
    assert copy(at(client, "a/b"), "1", at(goal, "c"), [tag]).digest == digest


def test_plan_copy_describes_and_only_reads(
    client: Client, target: Registry, client_of: MakeClient, image: made_images.Image
) -> None:
    other = made_images.image(seed=9)
    goal = client_of(target, login)
    made_images.put(client, "a/b", "1", image)
    made_images.put(goal, "c", "1", other)
    files = sorted(path for path in target.storage.rglob("*"))
    plan = plan_copy(at(client, "a/b"), "1", at(goal, "c"), ["1", "2"])
    assert plan.summary() == f"0 of {len(image.blobs)} blobs are there, {total(image) / 1e6:.1f} MB to send"
    place = at(goal, "c")
    one, two = plan.tags
    assert (one.tag, one.holder, two.tag, two.holder) == ("1", other.manifest, "2", None)
    assert tag_lines(place, two) == [f"{place}:2 will be pushed"]
    (sentence,) = tag_lines(place, one)
    assert sentence.startswith(f"{place}:1 will move from {other.manifest.digest[:19]}")
    (unmoved,) = plan_copy(at(client, "a/b"), "1", at(client, "a/b"), ["1"]).tags
    assert tag_lines(place, unmoved) == [f"{place}:1 is there already, with this image"]
    assert sorted(path for path in target.storage.rglob("*")) == files


def test_default_tag_of_a_promotion_is_the_build_tag(client: Client, target: Registry, client_of: MakeClient) -> None:
    """`uri` prints a digest, so neither FROM nor TO has a tag; an untagged image would expire in ECR."""
    labels = {
        "org.opencontainers.image.version": "0.1.0",
        "berth.kit": "train",
        "berth.profile": "cpu",
        "org.opencontainers.image.revision": "1a2b3c4d5e6f",
    }
    goal = client_of(target, login)
    exact = "build-0.1.0-cpu-1a2b3c4d5e6f"
    digest = made_images.put(client, "a/b", exact, made_images.image(labels=labels))
    assert copy(at(client, "a/b"), digest, at(goal, "c"), []).tags == (exact,)
    assert goal.tags("c") == [exact]
    # An image built FROM it inherits its labels, but is not that build.
    derived = made_images.put(client, "a/b", "mine", made_images.image(seed=8, labels=labels))
    assert refusal(lambda: copy(at(client, "a/b"), derived, at(goal, "c"), [])) == (
        f"{client.host}/a/b@{derived} does not have the tag {exact}, so it may be an image that was built FROM that "
        "one: give TO a tag, such as the image's own in FROM."
    )
    other = made_images.put(client, "a/b", "2", made_images.image(seed=7))
    assert copy(at(client, "a/b"), other, at(goal, "d"), []).tags == ()


def test_documents_that_the_target_refuses_are_a_warning(
    client: Client, target_proxy: FaultProxy, client_of: MakeClient, image: made_images.Image
) -> None:
    digest = made_images.put(client, "a/b", "1", image)
    referrers.upload_blobs(client, "a/b", b"a bill of materials")
    bill = referrers.attach(client, "a/b", image.manifest, b"a bill of materials").digest
    body = b'{"errors":[{"code":"MANIFEST_INVALID"}]}'
    target_proxy.answer(400, method="PUT", path=f"manifests/{bill}", times=9, body=body)
    lines: list[str] = []
    promoted = copy(at(client, "a/b"), "1", at(client_of(target_proxy, login), "c"), ["1"], say=lines.append)
    assert (promoted.digest, promoted.tags) == (digest, ("1",))
    assert "the documents attached to it in FROM are not" in lines[-1]
