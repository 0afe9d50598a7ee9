"""`build.py push` end to end: both images to a double of ECR and back."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from berth.common import engine, labels
from berth.ecr.registry import referrers
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.references import lists_referrers
from berth.ecr.registry.transport import Transport
from berth.ecr.repositories import retention
from berth.ecr.repositories.login import EcrLogin
from berth.images.pins import pins
from berth.images.selection import select_images
from tests.registry import made_images
from tests.registry.ecr_double import REGIONS, TOKEN
from tests.registry.engines import second_engine
from tests.registry.machine import PROFILE, Machine

RELEASE = "1.0-test"
"""A release tag, used if the images under test have no uncommitted changes."""


class Watch:
    """Searches the arguments and environment of every process for a text, repeatedly."""

    def __init__(self, text: str) -> None:
        self.text, self.processes, self.scans = text.encode(), set[str](), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.25):
            self.scans += 1
            for process in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        if self.text in (process / name).read_bytes():
                            self.processes.add(f"{process.name} {name}")
                    except OSError:
                        continue


@pytest.fixture(scope="module")
def released() -> list[str]:
    """`--tag RELEASE` if the images may be released."""
    client = engine.connect()
    images = select_images(client, pins.IMAGES, PROFILE, None)
    return [] if any(image.dirty for image in images) else ["--tag", RELEASE]


@pytest.fixture(scope="module")
def pushed(machine: Machine, released: list[str]) -> dict[str, dict[str, Any]]:
    """The JSON entries of both pushed images, by image. Meanwhile no process may have shown the token."""
    with Watch(TOKEN) as watch:
        entries = machine.push("all", *released, "--allow-pull", "sagemaker")
    assert watch.scans > 20
    assert watch.processes == set()
    return {entry["image"]: entry for entry in entries}


@pytest.fixture
def registry_client(machine: Machine) -> Client:
    """A client of the registry, to check its content."""
    return Client(Transport(machine.ecr.host(), EcrLogin(machine.ecr.client())))


@pytest.mark.parametrize("image", pins.IMAGES)
def test_pushed_tags_name_the_built_docker_manifest(
    image: str, pushed: dict[str, dict[str, Any]], released: list[str], machine: Machine, registry_client: Client
) -> None:
    entry = pushed[image]
    local = engine.connect().images.get(f"berth-{image}:{PROFILE}")
    assert entry["image_uri"] == f"{machine.ecr.host()}/berth-{image}@{entry['digest']}"
    assert entry["config"] == local.id
    build = entry["tags"][0]
    assert build.startswith(f"build-{pins.version()}-{PROFILE}-{entry['revision']}")
    for reference in (entry["digest"], build, *released[1:]):
        manifest = registry_client.manifest(f"berth-{image}", reference)
        assert manifest is not None
        assert manifest.media_type == "application/vnd.docker.distribution.manifest.v2+json"
        assert (manifest.digest, manifest.config_digest) == (entry["digest"], local.id)
        assert {layer.media_type for layer in manifest.layers} == {"application/vnd.docker.image.rootfs.diff.tar.gzip"}


def test_shared_layers_are_sent_once(pushed: dict[str, dict[str, Any]], registry_client: Client) -> None:
    manifests = {image: registry_client.manifest(f"berth-{image}", entry["digest"]) for image, entry in pushed.items()}
    layers = {
        image: {layer.digest: layer.size for layer in manifest.layers}
        for image, manifest in manifests.items()
        if manifest is not None
    }
    shared = layers["train"].keys() & layers["serve"].keys()
    assert sum(layers["train"][digest] for digest in shared) > 100_000_000
    once = sum({**layers["train"], **layers["serve"]}.values())
    assert sum(entry["bytes_sent"] for entry in pushed.values()) <= once


@pytest.mark.parametrize("image", pins.IMAGES)
def test_push_creates_strict_repository(image: str, pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    assert image in pushed
    ecr: Any = machine.ecr.client()
    name = f"berth-{image}"
    (made,) = ecr.describe_repositories(repositoryNames=[name])["repositories"]
    assert made["imageTagMutability"] == "IMMUTABLE"
    assert made["imageScanningConfiguration"] == {"scanOnPush": True}
    assert made["encryptionConfiguration"] == {"encryptionType": "AES256"}
    lifecycle = json.loads(ecr.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"])
    assert {rule["selection"]["tagStatus"] for rule in lifecycle["rules"]} == {"tagged", "untagged"}
    policy = json.loads(ecr.get_repository_policy(repositoryName=name)["policyText"])
    assert "sagemaker.amazonaws.com" in json.dumps(policy)


@pytest.mark.nightly
def test_another_engine_pulls_the_same_images_by_digest(pushed: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    ours = engine.connect()
    with second_engine(tmp_path) as other:
        for image, entry in pushed.items():
            got = other.images.pull(entry["image_uri"], auth_config={"username": "AWS", "password": TOKEN})
            built = ours.images.get(f"berth-{image}:{PROFILE}")
            assert got.id == built.id
            assert got.labels == built.labels
            assert f"{entry['host']}/berth-{image}@{entry['digest']}" in got.attrs["RepoDigests"]


@pytest.mark.parametrize("image", pins.IMAGES)
def test_bill_of_materials_is_written_and_attached(
    image: str, pushed: dict[str, dict[str, Any]], machine: Machine, registry_client: Client
) -> None:
    entry = pushed[image]
    document = (machine.home / "dist" / entry["bill"]["file"]).read_bytes()
    components = {component["name"] for component in json.loads(document)["components"]}
    assert {"torch", "transformers", "python3.11"} <= components
    (attached,) = referrers.attached(registry_client, f"berth-{image}", entry["digest"])
    assert attached.digest == entry["bill"]["digest"]
    assert made_images.read_document(registry_client, f"berth-{image}", attached) == document


def test_second_push_sends_nothing(pushed: dict[str, dict[str, Any]], released: list[str], machine: Machine) -> None:
    proxy = machine.ecr.proxies[REGIONS[0]]
    before = proxy.uploaded()
    assert before > 1_000_000
    again = {entry["image"]: entry for entry in machine.push("all", *released)}
    assert proxy.uploaded() == before
    assert {name: entry["digest"] for name, entry in again.items()} == {
        name: entry["digest"] for name, entry in pushed.items()
    }
    assert all(entry["bytes_sent"] == 0 for entry in again.values())


def test_promoted_release_gets_the_tag_that_keeps_it(machine: Machine, registry_client: Client, tmp_path: Path) -> None:
    name, build = "team/copied", "build-0.1.0-cpu-1a2b3c4d5e6f"
    ecr: Any = machine.ecr.client()
    ecr.create_repository(repositoryName=name)
    digest = made_images.put(registry_client, name, build, made_images.image())
    place = f"{machine.ecr.host()}/{name}"
    promoted = machine.build_py("promote", f"{place}:{build}", f"{place}:prod", "--dist", str(tmp_path))
    assert promoted.returncode == 0, promoted.stderr
    tags = [build, "prod", retention.tag(digest)]
    assert sorted(registry_client.tags(name)) == sorted(tags)
    assert {tag: held.digest for tag in tags if (held := registry_client.manifest(name, tag))} == dict.fromkeys(
        tags, digest
    )
    again = machine.build_py("promote", f"{place}:{build}", f"{place}:{build}", "--dist", str(tmp_path))
    assert (again.returncode, sorted(registry_client.tags(name))) == (0, sorted(tags))


@pytest.fixture
def own_image() -> Iterator[str]:
    """The name of an image that a user built FROM ours."""
    client, name = engine.connect(), "berth-test-own:1"
    dockerfile = f"FROM berth-train:{PROFILE}\nRUN echo yours > /opt/yours\n"
    client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=name, rm=True, network_mode="none")
    yield name
    client.images.remove(name, force=True)


def test_derived_image_is_pushed_under_its_name_as_a_release(
    pushed: dict[str, dict[str, Any]], own_image: str, machine: Machine, registry_client: Client
) -> None:
    push = machine.build_py("push", "--image", own_image, "--no-test", "--json")
    assert push.returncode == 0, push.stderr
    (entry,) = json.loads(push.stdout)
    kept = retention.tag(entry["digest"])
    assert (entry["repository"], entry["tags"], entry["derived"]) == ("berth-test-own", ["1", kept], own_image)
    kept_bill = retention.tag(entry["bill"]["digest"])
    tags = [tag for tag in registry_client.tags("berth-test-own") if not lists_referrers(tag)]
    assert sorted(tags) == sorted(["1", kept, kept_bill])
    assert "pytorch: " in push.stderr  # a layer's name as in `size`
    bill = json.loads((machine.home / "dist" / "berth-test-own-1.cdx.json").read_text())
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("berth-test-own", "1")
    printed = machine.build_py("uri", "--image", own_image)
    assert (printed.stdout, printed.stderr) == (f"{entry['image_uri']}\n", "")
    ours = machine.build_py("uri", "train", "--profile", PROFILE)
    assert ours.stdout == f"{pushed['train']['image_uri']}\n"


def test_push_uses_another_tag_if_the_build_tag_is_taken(
    pushed: dict[str, dict[str, Any]], machine: Machine, registry_client: Client
) -> None:
    name, exact = "team/taken", pushed["serve"]["tags"][0]
    if exact.endswith(f"-{pushed['serve']['local_id'][7:15]}"):
        pytest.skip("the images have uncommitted changes, so no other image can have their build tags")
    ecr: Any = machine.ecr.client()
    ecr.create_repository(repositoryName=name, imageTagMutability="IMMUTABLE")
    made_images.put(registry_client, name, exact, made_images.image())
    push = machine.build_py("push", "serve", "--profile", PROFILE, "--no-test", "--repository", name, "--json")
    assert push.returncode == 0, push.stderr
    (entry,) = json.loads(push.stdout)
    assert entry["tags"] == [f"{exact}-{entry['local_id'][7:15]}"]
    assert f"{name}:{exact} is on " in push.stderr


def settings(machine: Machine, name: str) -> dict[str, Any]:
    """A repository's settings in ECR, with its policies; a missing policy is None."""
    ecr: Any = machine.ecr.client()
    (state,) = ecr.describe_repositories(repositoryNames=[name])["repositories"]
    policies: dict[str, Any] = {"lifecycle": None, "pull": None}
    with suppress(ecr.exceptions.LifecyclePolicyNotFoundException):
        policies["lifecycle"] = json.loads(ecr.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"])
    with suppress(ecr.exceptions.RepositoryPolicyNotFoundException):
        policies["pull"] = json.loads(ecr.get_repository_policy(repositoryName=name)["policyText"])
    return {**state, **policies}


def test_mutable_tags_move_until_apply(
    pushed: dict[str, dict[str, Any]], released: list[str], machine: Machine, registry_client: Client, tmp_path: Path
) -> None:
    if not released:
        pytest.skip("the images have uncommitted changes, so they can't get a tag that moves")
    name = "team/moving"
    ecr: Any = machine.ecr.client()
    ecr.create_repository(repositoryName=name)  # with ECR's defaults
    before = settings(machine, name)
    assert before["imageTagMutability"] == "MUTABLE"
    theirs = made_images.image()
    for tag in ("stable", "old"):
        made_images.put(registry_client, name, tag, theirs)

    def push(tag: str, *more: str) -> CompletedProcess[str]:
        words = ("--profile", PROFILE, "--no-test", "--repository", name, "--tag", tag, "--dist", str(tmp_path))
        return machine.build_py("push", "serve", *words, *more)

    def digest_of(tag: str) -> str:
        manifest = registry_client.manifest(name, tag)
        assert manifest is not None
        return manifest.digest

    immutable_plan = push("stable", "--apply", "--dry-run")
    assert (immutable_plan.returncode, immutable_plan.stdout) == (1, "")
    assert f"/{name}:stable names another image, and the tags of this repository are immutable" in immutable_plan.stderr

    planned = push("stable", "--dry-run")
    assert f"{machine.ecr.host()}/{name}: image tags: mutable, wanted: immutable\n" in planned.stdout
    assert f"{machine.ecr.host()}/{name}:stable will move from {theirs.manifest.digest[:19]}\n" in planned.stdout
    assert digest_of("stable") == theirs.manifest.digest

    other = made_images.image(seed=5, labels={labels.KIT: "serve", labels.PROFILE: "another"})
    made_images.put(registry_client, name, "1.0", other)
    kept = push("1.0")
    assert kept.returncode == 0, kept.stderr
    assert f"the image of profile another; this image is tagged 1.0-{PROFILE}" in kept.stderr
    assert (digest_of("1.0"), digest_of(f"1.0-{PROFILE}")) == (other.manifest.digest, pushed["serve"]["digest"])

    moved = push("stable")
    assert moved.returncode == 0, moved.stderr
    assert f"the repository {name} differs: image tags: mutable, wanted: immutable\n" in moved.stderr
    assert f"the repository {name} differs: scan on push: off, wanted: on\n" in moved.stderr
    assert f"the repository {name} is not changed: --apply changes it.\n" in moved.stderr
    assert f"/{name}:stable will move from {theirs.manifest.digest[:19]}\n" in moved.stderr
    assert (digest_of("stable"), digest_of("old")) == (pushed["serve"]["digest"], theirs.manifest.digest)
    assert settings(machine, name) == before

    applied = push("stable", "--apply")
    assert applied.returncode == 0, applied.stderr
    assert f"the repository {name} is changed: image tags: mutable, wanted: immutable\n" in applied.stderr
    after = settings(machine, name)
    assert (after["imageTagMutability"], after["imageScanningConfiguration"]) == ("IMMUTABLE", {"scanOnPush": True})
    assert after["lifecycle"] is not None

    refused = push("old", "--apply")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"/{name}:old names another image, and the tags of this repository are immutable" in refused.stderr
    assert digest_of("old") == theirs.manifest.digest
    assert settings(machine, name) == after


def test_uri_prints_the_pushed_digests(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    done = machine.build_py("uri", "all", "--profile", PROFILE)
    assert done.stdout.split() == [pushed[image]["image_uri"] for image in pins.IMAGES]
    nowhere = machine.build_py("uri", "serve", "--profile", PROFILE, DOCKER_HOST="unix:///nowhere.sock")
    assert nowhere.stdout.split() == [pushed["serve"]["image_uri"]]


def test_token_is_in_no_file(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    assert pushed
    files = [path for path in machine.home.rglob("*") if path.is_file()]
    assert any(path.name == "images.json" for path in files)
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    assert not (machine.home / ".docker").exists()


def test_promote_to_another_region(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    entry = pushed["serve"]
    tag = entry["tags"][-1]
    copy = f"{machine.ecr.host(REGIONS[1])}/berth-serve"
    proxy = machine.ecr.proxies[REGIONS[1]]
    ecr: Any = machine.ecr.client(REGIONS[1])
    planned = machine.build_py("promote", entry["image_uri"], f"{copy}:{tag}", "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert plan["image_uri"] == f"{copy}@{entry['digest']}"
    assert plan["would"][0].startswith(f"{copy}: will be created: immutable tags, ")
    assert plan["would"][-1] == f"{copy}:{tag} will be pushed"
    assert ecr.describe_repositories()["repositories"] == []
    assert proxy.uploaded() == 0

    promoted = machine.build_py("promote", entry["image_uri"], f"{copy}:{tag}")
    assert promoted.returncode == 0, promoted.stderr
    assert promoted.stdout.split() == [f"{copy}@{entry['digest']}", f"{copy}:{tag}"]
    sent = proxy.uploaded()
    assert sent > entry["compressed"]
    again = machine.build_py("promote", entry["image_uri"], f"{copy}:{tag}", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["bytes_sent"] == 0
    assert proxy.uploaded() == sent
    known = machine.build_py("uri", "serve", "--profile", PROFILE, "--registry", REGIONS[1])
    assert known.stdout.split() == [f"{copy}@{entry['digest']}"]
    chosen = machine.build_py("uri", "serve", "--profile", PROFILE)
    assert (chosen.returncode, chosen.stdout) == (0, f"{entry['image_uri']}\n"), (
        "the region of the environment comes first"
    )
    assert f" and {copy}: this is the one in {entry['image_uri'].partition('@')[0]}; choose another" in chosen.stderr


def test_failure_of_one_region_does_not_stop_the_other(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    proxy = machine.ecr.proxies[REGIONS[1]]
    proxy.answer(403, times=1000, body=b'{"errors": [{"code": "DENIED", "message": "no"}]}')
    try:
        done = machine.build_py(
            "push", "serve", "--profile", PROFILE, "--no-test", "--json", "--region", ",".join(REGIONS)
        )
    finally:
        proxy.forget()
    assert done.returncode == 1
    assert [entry["image_uri"] for entry in json.loads(done.stdout)] == [pushed["serve"]["image_uri"]]
    assert REGIONS[1] in done.stderr.splitlines()[-1]
