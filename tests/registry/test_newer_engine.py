"""A newer engine with containerd's image store, the default of new installs: build, push, read back, size."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.common import engine
from berth.ecr.registry import manifest as manifests
from berth.images import base, pins
from tests.registry.conftest import MakeClient
from tests.registry.debian_engine import DebianEngine, make_root, running
from tests.registry.registries import Registry

CANARY = "berth-canary:1"
LABELS = {"berth.kit": "train", "berth.profile": "cpu", "org.opencontainers.image.version": pins.version()}


def _base() -> str:
    return os.environ.get(base.VARIABLE) or pins.load().base_image


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianEngine]:
    """Debian 13's engine with containerd's store, and the base that this machine's engine has."""
    folder = tmp_path_factory.mktemp("debian")
    settings = {"features": {"containerd-snapshotter": True}}
    with running(make_root(folder, "trixie"), folder / "engine", settings) as found:
        found.client.images.load(engine.connect().images.get(_base()).save(named=True))  # type: ignore[arg-type]  # pieces are sent as they come
        yield found


def run(newer: DebianEngine, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """A command in the checkout, which goes to the newer engine."""
    environment = {**newer.environment, "HOME": str(newer.folder), **more}
    return subprocess.run(
        words, cwd=pins.ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def canary(newer: DebianEngine) -> str:
    """The first layers of our images, as a plain `docker build` makes them."""
    words = ["docker", "build", "--file", "docker/Dockerfile", "--target", "python", "--tag", CANARY]
    words += ["--build-arg", f"BASE_IMAGE={_base()}", "--network", "host"]
    words += [word for name, text in LABELS.items() for word in ("--label", f"{name}={text}")]
    done = run(newer, *words, ".")
    assert done.returncode == 0, done.stderr[-3000:]
    return CANARY


def test_a_plain_build_is_pushed_as_sagemaker_takes_it(
    newer: DebianEngine, canary: str, registry: Registry, client_of: MakeClient, tmp_path: Path
) -> None:
    """The store has an OCI index; the registry gets a Docker manifest, and the counts are those of its layers."""
    stored = newer.client.api.inspect_image(canary)
    words = ["push", "--image", canary, "--registry", registry.host, "--no-test", "--json"]
    done = run(newer, sys.executable, "build.py", *words, BERTH_DIST=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)
    manifest = client_of(registry).manifest("berth-canary", entry["digest"])
    assert manifest is not None
    assert manifest.media_type == manifests.DOCKER_MANIFEST
    layers = manifest.parsed["layers"]
    assert len(layers) == len(stored["RootFS"]["Layers"])
    assert entry["bytes_sent"] == sum(each["size"] for each in layers)
    again = run(newer, sys.executable, "build.py", *words, BERTH_DIST=str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)[0]["bytes_sent"] == 0


def test_an_image_has_the_same_size_on_every_store(newer: DebianEngine, canary: str) -> None:
    ours = engine.connect()
    ours.images.load(newer.client.images.get(canary).save(named=True))  # type: ignore[arg-type]
    try:
        sizes = []
        for environment in (newer.environment, {}):
            command = [sys.executable, "build.py", "size", "--image", canary, "--json"]
            done = run(newer, *command, **({} if environment else {"DOCKER_HOST": ""}))
            assert done.returncode == 0, done.stderr
            (measured,) = json.loads(done.stdout)
            sizes.append([(layer["digest"], layer["compressed"]) for layer in measured["layers"]])
        assert sizes[0] == sizes[1]
    finally:
        ours.images.remove(canary, force=True)
