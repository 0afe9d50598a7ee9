"""A newer engine with containerd's image store, the default of new installs: build, push, read back, size."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.common import engine
from berth.ecr.registry import manifest as manifests
from berth.images.build import base
from berth.images.pins import pins, pins_file
from tests.registry.conftest import MakeClient
from tests.registry.debian_engine import DebianEngine, make_root, running
from tests.registry.registries import Registry

pytestmark = pytest.mark.nightly
CANARY = "berth-canary:1"
LABELS = {"berth.kit": "train", "berth.profile": "cpu", "org.opencontainers.image.version": pins.version()}


def _base() -> str:
    return os.environ.get(base.VARIABLE) or pins_file.load().base_image


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianEngine]:
    """Debian 13's engine with containerd's store and the base image of this machine's engine."""
    folder = tmp_path_factory.mktemp("debian")
    settings = {"features": {"containerd-snapshotter": True}}
    with running(make_root(folder, "trixie"), folder / "engine", settings) as found:
        saved = engine.connect().images.get(_base()).save(named=True)
        found.client.images.load(saved)  # type: ignore[arg-type]  # sent in pieces
        yield found
    shutil.rmtree(folder)  # half a gigabyte, which pytest would keep


def run(newer: DebianEngine, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command in the checkout with the newer engine."""
    environment = {**newer.environment, "HOME": str(newer.folder), **more}
    return subprocess.run(
        words, cwd=pins.ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def canary(newer: DebianEngine) -> str:
    """The first layers of our images, built with plain `docker build`."""
    words = ["docker", "build", "--file", "docker/Dockerfile", "--target", "python", "--tag", CANARY]
    words += ["--build-arg", f"BASE_IMAGE={_base()}"]
    words += [word for name, text in LABELS.items() for word in ("--label", f"{name}={text}")]
    done = run(newer, *words, ".")
    assert done.returncode == 0, done.stderr[-3000:]
    return CANARY


def test_plain_build_is_pushed_as_docker_manifest(
    newer: DebianEngine, canary: str, registry: Registry, client_of: MakeClient, tmp_path: Path
) -> None:
    """The store has an OCI index, but the registry gets a Docker manifest, and `bytes_sent` counts its layers."""
    stored = newer.client.api.inspect_image(canary)
    words = ["push", "--image", canary, "--registry", registry.host, "--no-test", "--json"]
    pushed = run(newer, sys.executable, "build.py", *words, BERTH_DIST=str(tmp_path))
    assert pushed.returncode == 0, pushed.stderr
    (entry,) = json.loads(pushed.stdout)
    manifest = client_of(registry).manifest("berth-canary", entry["digest"])
    assert manifest is not None
    assert manifest.media_type == manifests.DOCKER_MANIFEST
    layers = manifest.parsed["layers"]
    assert len(layers) == len(stored["RootFS"]["Layers"])
    assert entry["bytes_sent"] == sum(each["size"] for each in layers)
    again = run(newer, sys.executable, "build.py", *words, BERTH_DIST=str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)[0]["bytes_sent"] == 0


def test_size_is_the_same_on_both_image_stores(newer: DebianEngine, canary: str) -> None:
    ours = engine.connect()
    ours.images.load(newer.client.images.get(canary).save(named=True))  # type: ignore[arg-type]
    try:
        sizes = []
        for environment in (newer.environment, {}):
            command = [sys.executable, "build.py", "size", "--image", canary, "--json"]
            output = run(newer, *command, **({} if environment else {"DOCKER_HOST": ""}))
            assert output.returncode == 0, output.stderr
            (measured,) = json.loads(output.stdout)
            sizes.append([(layer["digest"], layer["compressed"]) for layer in measured["layers"]])
        assert sizes[0] == sizes[1]
    finally:
        ours.images.remove(canary, force=True)


@pytest.mark.parametrize("where", ["this machine's engine", "Debian 13's"])
def test_bake_pushes_docker_manifests(
    where: str, newer: DebianEngine, canary: str, registry: Registry, client_of: MakeClient
) -> None:
    """Debian 13's buildx must push Docker manifests, with every layer compressed."""
    words = ["docker", "buildx", "bake", "--file", "docker/bake.json", "serve-cpu", "--push"]
    words += [f"--set=*.tags={registry.host}/baked:1", "--set=*.target=python", f"--set=*.args.BASE_IMAGE={_base()}"]
    done = run(newer, *words, **({} if where == "Debian 13's" else {"DOCKER_HOST": ""}))
    assert done.returncode == 0, done.stderr[-3000:]
    manifest = client_of(registry).manifest("baked", "1")
    assert manifest is not None
    assert manifest.media_type == manifests.DOCKER_MANIFEST
    assert {layer.media_type for layer in manifest.layers} == {manifests.DOCKER_LAYER}


def test_docker_context_selects_the_engine(newer: DebianEngine, canary: str) -> None:
    for name, socket in (("alive", "engine.sock"), ("dead", "gone.sock")):
        made = run(newer, "docker", "context", "create", name, f"--docker=host=unix://{newer.folder / socket}")
        assert made.returncode == 0, made.stderr
    words = [sys.executable, "build.py", "size", "--image", canary]
    found = run(newer, *words, DOCKER_HOST="", DOCKER_CONTEXT="alive")
    assert found.returncode == 0, found.stderr
    refused = run(newer, *words, DOCKER_HOST="", DOCKER_CONTEXT="dead")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"berth: error: no Docker engine answers at unix://{newer.folder}/gone.sock")
    assert "(Docker's context 'dead')" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_doctor_names_folders_that_containers_cannot_see(newer: DebianEngine, tmp_path: Path) -> None:
    """This engine sees only its own folder, like an engine in a virtual machine with shared folders."""
    done = run(newer, sys.executable, "build.py", "doctor", TMPDIR=str(tmp_path), COLUMNS="500")
    assert f"a container does not see {tmp_path} (" in done.stdout
    assert f"; {pins.ROOT} (" in done.stdout
    assert "export TMPDIR=" in done.stdout
    shared = run(newer, sys.executable, "build.py", "doctor", TMPDIR=str(newer.folder), COLUMNS="500")
    assert f"{newer.folder} (" not in shared.stdout
