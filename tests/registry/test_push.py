"""`build.py push` end to end: both images to a double of ECR and back, and what AWS and the registry hold then."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from berth.ecr.login import EcrLogin
from berth.ecr.registry import attach
from berth.ecr.registry.client import Registry as Client
from berth.images import engine, pins
from tests.registry.ecr_double import ACCOUNT, REGIONS, TOKEN, EcrDouble, ecr_double
from tests.registry.engines import second_engine

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
BUILD = [sys.executable, str(pins.ROOT / "build.py")]
RELEASE = "1.0-test"


@dataclass
class Machine:
    """A user's machine: its home, its record of pushes, and ECR."""

    home: Path
    ecr: EcrDouble

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "DOCKER_HOST") if name in os.environ}
        return {**kept, "HOME": str(self.home), "BERTH_DIST": str(self.home / "dist"), **self.ecr.environment, **more}

    def build_py(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of build.py."""
        return subprocess.run(
            [*BUILD, *words], env=self.environment(**more), capture_output=True, text=True, timeout=600
        )

    def push(self, *words: str) -> list[dict[str, Any]]:
        """`push` of the images under test, which have their own tests elsewhere; what it printed for programs."""
        done = self.build_py("push", *words, "--profile", PROFILE, "--no-test", "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with ecr_double(tmp_path_factory.mktemp("ecr")) as double:
        yield Machine(tmp_path_factory.mktemp("home"), double)


class Watch:
    """Looks for a text in the arguments and the environment of every process, all the time."""

    def __init__(self, text: str) -> None:
        self.text, self.found, self.looks = text.encode(), set[str](), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            self.looks += 1
            for process in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        if self.text in (process / name).read_bytes():
                            self.found.add(f"{process.name} {name}")
                    except OSError:
                        continue


@pytest.fixture(scope="module")
def pushed(machine: Machine) -> dict[str, dict[str, Any]]:
    """Both images in ECR, by name, with what `push` said of each; no process may have shown the token meanwhile."""
    with Watch(TOKEN) as watch:
        entries = machine.push("all", "--tag", RELEASE, "--allow-pull", "sagemaker")
    assert watch.looks > 20
    assert watch.found == set()
    return {entry["image"]: entry for entry in entries}


@pytest.fixture
def inside(machine: Machine) -> Client:
    """Our own client of the registry, to look at what is there."""
    return Client(machine.ecr.host(), EcrLogin(machine.ecr.client(), ACCOUNT))


@pytest.mark.parametrize("image", pins.IMAGES)
def test_the_registry_holds_one_docker_manifest_of_what_was_built(
    image: str, pushed: dict[str, dict[str, Any]], machine: Machine, inside: Client
) -> None:
    entry = pushed[image]
    local = engine.connect().images.get(f"berth-{image}:{PROFILE}")
    assert entry["image_uri"] == f"{machine.ecr.host()}/berth-{image}@{entry['digest']}"
    assert entry["config"] == local.id
    exact = f"{pins.version()}-{PROFILE}-{entry['revision']}"
    for reference in (entry["digest"], exact, RELEASE):
        manifest = inside.manifest(f"berth-{image}", reference)
        assert manifest is not None
        assert manifest.media_type == "application/vnd.docker.distribution.manifest.v2+json"
        assert (manifest.digest, manifest.config_digest) == (entry["digest"], local.id)
        assert {layer.media_type for layer in manifest.layers} == {"application/vnd.docker.image.rootfs.diff.tar.gzip"}


@pytest.mark.parametrize("image", pins.IMAGES)
def test_the_repository_is_made_strict(image: str, pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
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


def test_an_engine_that_never_saw_them_gets_the_same_images_by_digest(
    pushed: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    ours = engine.connect()
    with second_engine(tmp_path) as other:
        for image, entry in pushed.items():
            got = other.images.pull(entry["image_uri"], auth_config={"username": "AWS", "password": TOKEN})
            built = ours.images.get(f"berth-{image}:{PROFILE}")
            assert got.id == built.id
            assert got.labels == built.labels
            assert f"{entry['host']}/berth-{image}@{entry['digest']}" in got.attrs["RepoDigests"]


@pytest.mark.parametrize("image", pins.IMAGES)
def test_the_bill_of_materials_is_beside_the_record_and_beside_the_image(
    image: str, pushed: dict[str, dict[str, Any]], machine: Machine, inside: Client
) -> None:
    entry = pushed[image]
    document = (machine.home / "dist" / entry["bill"]["file"]).read_bytes()
    named = {component["name"] for component in json.loads(document)["components"]}
    assert {"torch", "transformers", "python3.11"} <= named
    (attached,) = attach.attached(inside, f"berth-{image}", entry["digest"])
    assert attached.digest == entry["bill"]["digest"]
    assert attach.read(inside, f"berth-{image}", attached) == document


def test_a_second_push_sends_nothing(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    proxy = machine.ecr.proxies[REGIONS[0]]
    before = proxy.uploaded()
    assert before > 1_000_000
    again = {entry["image"]: entry for entry in machine.push("all", "--tag", RELEASE)}
    assert proxy.uploaded() == before
    assert {name: entry["digest"] for name, entry in again.items()} == {
        name: entry["digest"] for name, entry in pushed.items()
    }
    assert all(entry["bytes_sent"] == 0 for entry in again.values())


def test_a_tag_that_names_another_image_is_not_moved(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    assert "train" in pushed
    done = machine.build_py(
        "push", "serve", "--profile", PROFILE, "--no-test", "--repository", "berth-train", "--tag", RELEASE
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"berth-train:{RELEASE} names another image, and the tags of this repository are immutable" in done.stderr


def test_uri_reads_the_push_back(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    done = machine.build_py("uri", "all", "--profile", PROFILE)
    assert done.stdout.split() == [pushed[image]["image_uri"] for image in pins.IMAGES]
    nowhere = machine.build_py("uri", "serve", "--profile", PROFILE, DOCKER_HOST="unix:///nowhere.sock")
    assert nowhere.stdout.split() == [pushed["serve"]["image_uri"]]


def test_no_file_of_the_user_holds_the_token(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    assert pushed
    files = [path for path in machine.home.rglob("*") if path.is_file()]
    assert any(path.name == "images.json" for path in files)
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    assert not (machine.home / ".docker").exists()


def test_an_image_goes_on_to_another_region_blob_by_blob(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
    there = f"{machine.ecr.host(REGIONS[1])}/berth-serve"
    proxy = machine.ecr.proxies[REGIONS[1]]
    done = machine.build_py("promote", pushed["serve"]["image_uri"], f"{there}:{RELEASE}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{there}@{pushed['serve']['digest']}", f"{there}:{RELEASE}"]
    sent = proxy.uploaded()
    assert sent > pushed["serve"]["compressed"]
    again = machine.build_py("promote", pushed["serve"]["image_uri"], f"{there}:{RELEASE}")
    assert again.returncode == 0, again.stderr
    assert proxy.uploaded() == sent


def test_one_region_that_fails_does_not_stop_the_other(pushed: dict[str, dict[str, Any]], machine: Machine) -> None:
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


def test_a_dry_run_changes_nothing(machine: Machine) -> None:
    ecr: Any = machine.ecr.client()
    before = [each["repositoryName"] for each in ecr.describe_repositories()["repositories"]]
    done = machine.build_py("push", "train", "--profile", PROFILE, "--repository", "team/{image}", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "team/train: will be created" in done.stderr
    assert [each["repositoryName"] for each in ecr.describe_repositories()["repositories"]] == before
