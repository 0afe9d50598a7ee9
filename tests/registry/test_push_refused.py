"""`build.py push` refuses images that must not be published, and silent hosts, before it changes anything.

The images have a few bytes and berth's names and labels, on an engine of their own; only the labels matter here.
"""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.common import labels
from berth.common.labels import SOURCE
from berth.ecr import commands
from berth.ecr.registry import transport
from berth.images.options import Which
from berth.images.pins import pins
from tests.registry import made_images
from tests.registry.conftest import refusal
from tests.registry.ecr_double import REGIONS
from tests.registry.engines import address, second_engine
from tests.registry.fault_proxy import FaultProxy
from tests.registry.machine import Machine
from tests.registry.registries import Registry

PROFILE = pins.DEFAULT_PROFILE
REVISION = "1a2b3c4d5e6f"
DOUBLE = f"1.47.0{labels.DOUBLE}"
NAME = f"berth-train:{PROFILE}"

MakeImage = Callable[..., None]


@pytest.fixture(scope="module")
def other_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[docker.DockerClient]:
    """An engine without the images under test; the commands of these tests use it."""
    folder = tmp_path_factory.mktemp("engine")
    with second_engine(folder) as client, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address(folder))
        yield client


@pytest.fixture
def make_image(other_engine: docker.DockerClient) -> MakeImage:
    """`make_image(revision=…, efa=…)`: a training image of a few bytes with these labels, on `other_engine`."""

    def make(revision: str = REVISION, efa: str = "1.47.0") -> None:
        image_labels = {
            labels.KIT: "train",
            "berth.efa": efa,
            f"{SOURCE}.version": "0.1.0",
            f"{SOURCE}.revision": revision,
        }
        content, _ = made_images.layer(1, 1000)
        lines = [f'LABEL "{name}"="{text}"' for name, text in image_labels.items()]
        other_engine.api.import_image_from_data(content, repository="berth-train", tag=PROFILE, changes=lines)

    return make


@pytest.fixture(autouse=True)
def no_requests_yet(machine: Machine) -> None:
    for proxy in machine.ecr.proxies.values():
        proxy.forget()


def requests(machine: Machine) -> set[str]:
    """The requests that the registries got."""
    return {f"{each.method} {each.path}" for proxy in machine.ecr.proxies.values() for each in proxy.requests}


def assert_nothing_was_made(machine: Machine) -> None:
    """Checks that no account has a repository, no registry has a file, and nothing is recorded."""
    for region in REGIONS:
        ecr: Any = machine.ecr.client(region)
        assert ecr.describe_repositories()["repositories"] == []
        assert stored(machine.ecr.registries[region]) == []
    assert not (machine.home / "dist").exists()


def stored(registry: Registry) -> list[Path]:
    """The files in a registry's storage."""
    return [path for path in registry.storage.rglob("*") if path.is_file()]


def refused(machine: Machine, *words: str) -> str:
    """What a refused push prints."""
    done = machine.build_py("push", "train", "--profile", PROFILE, "--json", *words)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.rstrip("\n")


def test_clean_image_passes_the_dry_run(machine: Machine, make_image: MakeImage) -> None:
    make_image()
    dry_run = machine.build_py("push", "train", "--profile", PROFILE, "--tag", "1.0", "--dry-run")
    assert dry_run.returncode == 0, dry_run.stderr
    place = f"{machine.ecr.host()}/berth-train"
    assert dry_run.stdout.splitlines() == [
        f"{place}: will be created: immutable tags, scan on push, AES-256, a lifecycle policy (all of release-*, "
        "50 of build-*, untagged for 30 days)",
        f"{place}:build-0.1.0-{PROFILE}-{REVISION} will be pushed",
        f"{place}:1.0 will be pushed",
    ]
    assert requests(machine) == {"GET /v2/"}  # the check whether it answers
    assert_nothing_was_made(machine)


@pytest.mark.parametrize("words", [(), ("--region", ",".join(REGIONS)), ("--no-test",), ("--dry-run",)])
def test_push_refuses_image_with_test_double(words: tuple[str, ...], machine: Machine, make_image: MakeImage) -> None:
    make_image(efa=DOUBLE)
    assert refused(machine, *words) == (
        f"berth: error: {NAME} holds a test's double of efa {DOUBLE}: it is for tests, and may not be "
        "published; build it without doubles."
    )
    assert requests(machine) == set()
    assert_nothing_was_made(machine)


def test_push_to_another_registry_refuses_test_double(
    machine: Machine, make_image: MakeImage, registry: Registry, proxy: FaultProxy
) -> None:
    make_image(efa=DOUBLE)
    assert "holds a test's double of efa" in refused(machine, "--registry", proxy.host)
    assert (proxy.requests, stored(registry)) == ([], [])
    assert requests(machine) == set()
    assert_nothing_was_made(machine)


def test_dirty_image_gets_no_release_tag(machine: Machine, make_image: MakeImage) -> None:
    revision = f"{REVISION}-dirty"
    make_image(revision)
    sentence = refused(machine, "--tag", "1.0", "--tag", "prod")
    assert sentence.startswith(f"berth: error: {NAME} contains uncommitted changes, so it can't be tagged 1.0, prod: ")
    assert requests(machine) == set()
    done = machine.build_py("push", "train", "--profile", PROFILE, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert re.search(rf"/berth-train:build-0\.1\.0-{PROFILE}-{revision}-[0-9a-f]{{8}} will be pushed", done.stdout)
    assert_nothing_was_made(machine)


def test_push_reports_all_image_problems_together(machine: Machine, make_image: MakeImage) -> None:
    make_image(f"{REVISION}-dirty", DOUBLE)
    sentence = refused(machine, "--tag", "1.0")
    assert "holds a test's double of efa" in sentence
    assert f"{NAME} contains uncommitted changes" in sentence
    assert requests(machine) == set()
    assert_nothing_was_made(machine)


def test_push_gives_up_on_a_silent_registry(
    make_image: MakeImage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transport, "_CONNECT_S", 0.2)
    monkeypatch.setattr(transport, "_FIRST_READ_S", 0.2)
    make_image()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        sentence = refusal(
            lambda: commands.push_images(Which.train, PROFILE, host=host, no_test=True, dist=tmp_path / "dist")
        )
    assert sentence.startswith(f"{host} can't be reached (timed out): check that the name and the port are right")
    assert not (tmp_path / "dist").exists()
