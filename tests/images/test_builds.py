"""Builds: the printed command, rebuilds after edits, and unsuitable bases."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import docker
import pytest

from berth.common import engine
from berth.common.errors import UserError
from berth.images.build import docker_build
from berth.images.build.base import VARIABLE, local_base
from berth.images.build.buildkit_log import Progress
from berth.images.inspect.layers import read_layers
from berth.images.pins import pins, pins_file
from tests.doubles.package_index import wheel
from tests.images.conftest import CommandLine


def stages_that_ran(built: docker_build.Built) -> set[str]:
    """The stages with a step that was not cached."""
    progress = Progress()
    for line in built.log.read_text().splitlines():
        progress.feed(line)
    return {step.stage for step in progress.steps.values() if step.stage and not step.cached}


def layers_of(client: docker.DockerClient, tag: str) -> list[str]:
    """The digests of an image's layers, lowest first."""
    layers: list[str] = client.images.get(tag).attrs["RootFS"]["Layers"]
    return layers


@pytest.mark.parametrize("image", pins.IMAGES)
def test_dry_run_command_builds_the_same_image(
    image: str, client: docker.DockerClient, profile: pins.Profile, command_line: CommandLine
) -> None:
    tag = f"berth-{image}:{profile.name}"
    # Omit the parts that the image under test lacks, because this build moves its tag.
    labels = client.images.get(tag).labels
    omitted = [part for part in profile.files if labels.get(f"berth.{part}", pins.NONE) == pins.NONE]
    words = (
        "build",
        image,
        "--profile",
        profile.name,
        *(word for part in omitted for word in ("--without", part)),
    )
    built = command_line(*words)
    assert built.returncode == 0, built.stderr
    before = client.images.get(tag).id
    printed = command_line(*words, "--dry-run")
    assert printed.returncode == 0, printed.stderr
    rebuilt = subprocess.run(printed.stdout, shell=True, capture_output=True, text=True, timeout=300)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert client.images.get(tag).id == before


def test_edit_of_run_qa_makes_one_small_layer(
    client: docker.DockerClient, kit_copy: Path, tmp_path: Path, build_as: Callable[..., docker_build.Built]
) -> None:
    # Compare with a build of the same folder: for another folder BuildKit may use either of two cached steps.
    build_as("berth-test:before", "train", kit_copy)
    with (kit_copy / "train" / "run_qa" / "program.py").open("a") as file:
        file.write("\n# edited\n")
    built = build_as("berth-test:after", "train", kit_copy)

    old = layers_of(client, "berth-test:before")
    archive = tmp_path / "after.tar"
    with archive.open("wb") as file:
        for piece in client.images.get("berth-test:after").save(chunk_size=1 << 20):
            file.write(piece)
    # Old layers count as known, because compressing gigabytes takes minutes.
    layers = read_layers(archive, dict.fromkeys(old, (0, 0)), lambda _: None)
    archive.unlink()
    fresh = [layer for layer in layers if layer.digest not in old]
    print(f"rebuilt in {built.seconds:.1f} s, new: {[(layer.made_by, layer.compressed) for layer in fresh]}")
    assert len(fresh) == 1
    assert fresh[0].compressed < 1_000_000  # berth's own code


@pytest.mark.parametrize("image", [pytest.param("train", marks=pytest.mark.nightly), "serve"])
def test_changes_of_another_profile_rebuild_nothing(
    image: str,
    client: docker.DockerClient,
    profile: pins.Profile,
    kit_copy: Path,
    build_as: Callable[..., docker_build.Built],
) -> None:
    build_as("berth-test:before", image, kit_copy)
    other = next(name for name in pins_file.load().profiles if name != profile.name)
    for lock in (kit_copy / "docker" / "locks" / other).glob("*.*"):
        with lock.open("a") as file:
            file.write("# locked again\n")
    (kit_copy / "docker" / "wheels" / "torch-0.0-py3-none-any.whl").write_bytes(b"")
    built = build_as("berth-test:after", image, kit_copy)
    # BuildKit may repeat the stages that collect inputs and make berth's wheel; both take a second.
    assert stages_that_ran(built) <= {"inputs", f"kit-{image}"}
    assert layers_of(client, "berth-test:after") == layers_of(client, "berth-test:before")


@pytest.mark.parametrize("image", [pytest.param("train", marks=pytest.mark.nightly), "serve"])
def test_file_times_do_not_change_layers(
    image: str, client: docker.DockerClient, kit_copy: Path, build_as: Callable[..., docker_build.Built]
) -> None:
    build_as("berth-test:before", image, kit_copy)
    for path in kit_copy.rglob("*.py"):
        os.utime(path, (2_000_000_000, 2_000_000_000))
    # A file that is not part of the wheel makes its step run again; random, because the cache has earlier ones.
    (kit_copy / "berth" / "qa" / "notes.txt").write_text(token_hex(8))
    built = build_as("berth-test:after", image, kit_copy)
    assert f"kit-{image}" in stages_that_ran(built)
    assert layers_of(client, "berth-test:after") == layers_of(client, "berth-test:before")


def test_build_works_without_local_wheels(kit_copy: Path, build_as: Callable[..., docker_build.Built]) -> None:
    shutil.rmtree(kit_copy / "docker" / "wheels")
    build_as("berth-test:inputs", "train", kit_copy, target="inputs")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("printf 'ID=alpine\\nPRETTY_NAME=\"Alpine 3\"\\n' > /etc/os-release", "the base image is Alpine 3; give"),
        ("rm -f /etc/os-release", "the base image is of an unknown kind; give"),
        (
            "for f in /etc/apt/sources.list /etc/apt/sources.list.d/*; do rm -f $f; done",
            "can't be installed on Debian GNU/Linux 12 (bookworm): fix the network error",
        ),
    ],
    ids=["not-debian", "unknown", "no-python"],
)
def test_unsuitable_base_is_refused_with_the_reason(
    edit: str, message: str, client: docker.DockerClient, tmp_path: Path, build_as: Callable[..., docker_build.Built]
) -> None:
    base = local_base(client, pins_file.load(), os.environ.get(VARIABLE)).reference
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN {edit}\n")
    command = [engine.find_client(), "build", "--quiet", "--tag", "berth-test:base", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, env=engine.client_environment(os.environ))
    try:
        with pytest.raises(UserError, match="The whole log:") as refusal:
            build_as("berth-test:refused", "serve", pins.ROOT, base="berth-test:base")
        assert message in str(refusal.value)
        assert not client.images.list("berth-test:refused")
    finally:
        client.images.remove("berth-test:base", force=True)


# A wheel in uv's cache is changed; a second install uses it silently in spite of the hashes.
_CHANGED_CACHE_SCRIPT = """
set -eu
export UV_OFFLINE=1
with_a_cache() {
    /tmp/tools/uv pip install --quiet --no-deps --require-hashes --find-links /tmp/layer/wheels --target "$1" \\
        --python /opt/berth/bin/python --requirement /tmp/layer/lock.txt
}
with_a_cache /tmp/first
echo 'print("changed")' | tee -a /root/.cache/uv/archive-v0/*/pinned.py >/dev/null
with_a_cache /tmp/second
PYTHONPATH=/tmp/second python -c 'import pinned'
. /tmp/layer/common.sh
install_locked
python -c 'import pinned'
ls /opt
"""


def test_manipulated_wheel_cache_does_not_change_a_layer(
    client: docker.DockerClient, profile: pins.Profile, tmp_path: Path
) -> None:
    file = tmp_path / "wheels" / "pinned-1.0-py3-none-any.whl"
    file.parent.mkdir()
    packed = wheel("pinned", 'print("as pinned")\n')
    file.write_bytes(packed)
    digest = hashlib.sha256(packed).hexdigest()
    (tmp_path / "lock.txt").write_text(f"pinned==1.0 --hash=sha256:{digest}\n")
    mounts = {
        pins.ROOT / "docker" / "layers" / "common.sh": "layer/common.sh",
        Path(sys.executable).with_name("uv"): "tools/uv",
        tmp_path / "wheels": "layer/wheels",
        tmp_path / "lock.txt": "layer/lock.txt",
    }
    message = client.containers.run(
        f"berth-train:{profile.name}",
        ["sh", "-c", _CHANGED_CACHE_SCRIPT],
        volumes={str(path): {"bind": f"/tmp/{name}", "mode": "ro"} for path, name in mounts.items()},
        network_mode="none",
        remove=True,
    ).decode()
    # The first line comes from the second install with the cache, the other from the layer's own install.
    assert message.splitlines() == ["as pinned", "changed", "as pinned", "berth"], message
