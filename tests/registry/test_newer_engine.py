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

CANARY = "berth-canary:1"
LABELS = {"berth.kit": "train", "berth.profile": "cpu", "org.opencontainers.image.version": pins.version()}


def _base() -> str:
    return os.environ.get(base.VARIABLE) or pins_file.load().base_image


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianEngine]:
    """Debian 13's engine with containerd's store, and the base that this machine's engine has."""
    folder = tmp_path_factory.mktemp("debian")
    settings = {"features": {"containerd-snapshotter": True}}
    with running(make_root(folder, "trixie"), folder / "engine", settings) as found:
        saved = engine.connect().images.get(_base()).save(named=True)
        found.client.images.load(saved)  # type: ignore[arg-type]  # pieces are sent as they come
        yield found
    shutil.rmtree(folder)  # half a gigabyte, which pytest would keep for a while


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
    words += ["--build-arg", f"BASE_IMAGE={_base()}"]
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


@pytest.mark.parametrize("where", ["this machine's engine", "Debian 13's"])
def test_bake_pushes_what_sagemaker_takes(
    where: str, newer: DebianEngine, canary: str, registry: Registry, client_of: MakeClient
) -> None:
    """By Debian 13's buildx, and with every layer compressed."""
    words = ["docker", "buildx", "bake", "--file", "docker/bake.json", "serve-cpu", "--push"]
    words += [f"--set=*.tags={registry.host}/baked:1", "--set=*.target=python", f"--set=*.args.BASE_IMAGE={_base()}"]
    done = run(newer, *words, **({} if where == "Debian 13's" else {"DOCKER_HOST": ""}))
    assert done.returncode == 0, done.stderr[-3000:]
    manifest = client_of(registry).manifest("baked", "1")
    assert manifest is not None
    assert manifest.media_type == manifests.DOCKER_MANIFEST
    assert {layer.media_type for layer in manifest.layers} == {manifests.DOCKER_LAYER}


def test_a_context_of_dockers_client_leads_to_its_engine(newer: DebianEngine, canary: str) -> None:
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


def test_doctor_names_the_folders_that_the_engine_does_not_see(newer: DebianEngine, tmp_path: Path) -> None:
    """This engine sees its own folder alone, as one in a virtual machine sees those that are shared with it."""
    done = run(newer, sys.executable, "build.py", "doctor", TMPDIR=str(tmp_path), COLUMNS="500")
    assert f"a container does not see {tmp_path} (" in done.stdout
    assert f"; {pins.ROOT} (" in done.stdout
    assert "export TMPDIR=" in done.stdout
    shared = run(newer, sys.executable, "build.py", "doctor", TMPDIR=str(newer.folder), COLUMNS="500")
    assert f"{newer.folder} (" not in shared.stdout
