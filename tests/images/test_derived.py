"""A user's image built FROM berth's with one more package."""

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from berth.images.inspect import layers
from berth.images.pins import pins

PROGRAM = """
import einops, numpy
from berth.qa import squad
print("einops", einops.__version__, einops.rearrange(numpy.arange(4), "(a b) -> b a", a=2).tolist(), flush=True)
"""


@pytest.fixture(scope="module")
def derived(derive: Callable[..., str]) -> str:
    return derive("einops==0.8.1")


def test_program_in_derived_image_imports_its_package(
    derived: str, command_line: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ("--code", str(tmp_path), "--output", str(tmp_path / "out"))
    done = command_line("run", "train", "--image", derived, *words)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "algo-1 | einops 0.8.1 [[0, 2], [1, 3]]" in done.stdout.splitlines()


def test_derived_image_keeps_entrypoint_and_environment(
    derived: str, client: docker.DockerClient, profile: pins.Profile
) -> None:
    configured = client.images.get(derived).attrs["Config"]
    original = client.images.get(f"berth-train:{profile.name}").attrs["Config"]
    for name in ("Entrypoint", "Cmd", "Env"):
        assert configured[name] == original[name]


def test_bill_and_uri_of_derived_image_use_its_own_name(
    derived: str,
    client: docker.DockerClient,
    command_line: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    image = client.images.get(derived)
    names = list(layers.layer_names(image.history(), image.attrs["RootFS"]["Layers"]).values())
    assert (names[0], names[-2]) == ("base", "train")
    assert names[-1].startswith("yours: RUN ")
    billed = command_line("bill", "--image", derived, "--dist", str(tmp_path))
    assert billed.returncode == 0, billed.stderr
    document = json.loads((tmp_path / f"{derived.replace(':', '-')}.cdx.json").read_text())
    assert "einops" in {each["name"] for each in document["components"]}
    assert document["metadata"]["component"]["name"] == "berth-test"
    printed = command_line("uri", "--image", derived, "--dist", str(tmp_path))
    assert (printed.stdout, printed.stderr) == (f"{derived}\n", "")


RUN_TRAIN = f"run train --data {pins.ROOT}/sample/squad-train.json.xz -p model_name_or_path=any"


@pytest.mark.parametrize("command", ["test", "size", "bill", "push", "uri", RUN_TRAIN, "run serve --model any"])
def test_image_not_built_from_berths_is_refused(
    command: str, client: docker.DockerClient, command_line: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    client.images.build(fileobj=io.BytesIO(b"FROM scratch\nLABEL a=b\n"), tag="berth-test:stranger", rm=True)
    try:
        done = command_line(*command.split(), "--image", "berth-test:stranger")
    finally:
        client.images.remove("berth-test:stranger")
    assert (done.returncode, done.stdout) == (1, "")
    assert "berth-test:stranger was not built FROM one of berth's images (they have the labels" in done.stderr
