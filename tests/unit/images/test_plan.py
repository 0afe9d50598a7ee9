"""Tags, labels and whole command lines of a build."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berth.common import labels
from berth.common.errors import UserError
from berth.images import dockerfiles, pins
from berth.images.parts import left_out, unpinned
from berth.images.plan import Base, Checkout, Provided, Revision, build_plan, refusals, tags

KIT = pins.load()
LOCKS = pins.ROOT / "docker" / "locks"
CLEAN = Revision("1a2b3c4d5e6f", dirty=False, created="2026-11-21T08:00:00+00:00")


@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (CLEAN, "berth-train:0.1.0-cpu-1a2b3c4d5e6f"),
        (Revision("1a2b3c4d5e6f", dirty=True), "berth-train:0.1.0-cpu-1a2b3c4d5e6f-dirty"),
        (Revision("none"), "berth-train:0.1.0-cpu-none"),
    ],
    ids=["clean", "dirty", "no-git"],
)
def test_tags(revision: Revision, expected: str) -> None:
    assert tags("train", "cpu", "0.1.0", revision) == (expected, "berth-train:cpu")


def plan_of(image: str, profile: str = "cpu", **changes: Any) -> str:
    given = {"base": Base(KIT.base_image, "sha256:00"), "secrets": {}, **changes}
    default = dockerfiles.build_arguments(KIT, KIT.profile("cpu"), image if image in pins.IMAGES else "train")
    checkout = Checkout(Path("/kit"), "0.1.0", CLEAN, {image: given.pop("rendered", default)})
    row = given.pop("row", KIT.profile(profile))
    return build_plan(KIT, row, image, checkout, Provided(**given)).command()


def test_the_default_build_needs_no_arguments() -> None:
    assert plan_of("train") == (
        "DOCKER_BUILDKIT=1 BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build"
        " --platform linux/amd64 --file /kit/docker/train.Dockerfile"
        " --label org.opencontainers.image.version=0.1.0"
        " --label org.opencontainers.image.revision=1a2b3c4d5e6f"
        f" --label org.opencontainers.image.base.name={KIT.base_image}"
        " --label org.opencontainers.image.base.digest=sha256:00"
        " --label org.opencontainers.image.licenses=Apache-2.0"
        " --label org.opencontainers.image.created=2026-11-21T08:00:00+00:00"
        " --tag berth-train:0.1.0-cpu-1a2b3c4d5e6f --tag berth-train:cpu /kit"
    )


def test_a_closed_network_adds_base_secrets_and_names_of_proxies() -> None:
    line = plan_of(
        "serve",
        base=Base("berth-base:bookworm", "sha256:11"),
        secrets={"uv": Path("/c/uv"), "ca": Path("/c/ca with space")},
        proxies=("HTTPS_PROXY", "no_proxy"),
    )
    assert (
        "--build-arg BASE_IMAGE=berth-base:bookworm --build-arg HTTPS_PROXY --build-arg no_proxy"
        " --secret 'id=ca,src=/c/ca with space' --secret id=uv,src=/c/uv --label" in line
    )


def test_another_profile_gives_its_row() -> None:
    line = plan_of("train", "cu130")
    efa = KIT.file("efa-1.47.0")
    assert (
        "--build-arg PROFILE=cu130 --build-arg HARDWARE=cu130 --build-arg CUDA=13.0.3 --build-arg CUDNN=9.20.0"
        f" --build-arg NCCL=2.29.7 --build-arg TRITON=3.7.1 --build-arg TORCH={KIT.profile('cu130').torch}"
        " --build-arg TORCH_INDEX="
        " --build-arg EFA=1.47.0"
        f" --build-arg EFA_FILE=aws-efa-installer-1.47.0.tar.gz --build-arg EFA_SHA256={efa.sha256}"
        " --build-arg EFA_KEY_FILE=aws-efa-installer.key"
        " --build-arg EFA_KEY_FINGERPRINT=4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC --label" in line
    )
    assert line.endswith("--tag berth-train:0.1.0-cu130-1a2b3c4d5e6f --tag berth-train:cu130 /kit")


def test_what_the_dockerfile_does_not_have_yet_is_passed() -> None:
    """Between an edit of pins.toml and `build.py pins` the image is what pins.toml says, and so is its label."""
    rendered = dockerfiles.build_arguments(KIT, KIT.profile("cpu"), "train")
    older = {**rendered, "BASE_IMAGE": "debian:older", "OPENMPI": "4.1.7"}
    del older["CUDA_COMPAT_SHA256"]
    assert (
        f"--build-arg BASE_IMAGE={KIT.base_image} --build-arg OPENMPI={rendered['OPENMPI']}"
        " --build-arg CUDA_COMPAT_SHA256=none --label"
    ) in plan_of("train", rendered=older)
    assert "--build-arg OPENMPI" not in plan_of("train", rendered={**older, "OPENMPI": rendered["OPENMPI"]})


def test_a_part_that_is_left_out_gives_no_arguments() -> None:
    row = KIT.profile("cu130").without(["efa", "smddp"])
    assert dockerfiles.build_arguments(KIT, row, "train")["EFA"] == "none"
    with pytest.raises(UserError, match="no part 'nccl' can be left out"):
        row.without(["nccl"])


def test_what_a_build_goes_without_is_in_its_label_with_the_reason() -> None:
    row = KIT.profile("cu124").without(["efa"]).without(["smddp"], labels.UNPINNED)
    assert "--label berth.left-out=efa=without,smddp=unpinned " in plan_of("train", row=row)
    assert "berth.left-out" not in plan_of("serve", row=row), "the inference image has neither part"
    assert "berth.left-out" not in plan_of("train", row=KIT.profile("cpu").without(["efa"])), "the row has none"
    assert labels.left_out({labels.LEFT_OUT: "efa=without,smddp=unpinned"}) == {"efa": "without", "smddp": "unpinned"}
    assert labels.left_out({}) == {}


def test_unknown_image() -> None:
    with pytest.raises(UserError, match="there is no image 'sevre': name train or serve"):
        plan_of("sevre")


def test_refusals_name_what_is_missing(tmp_path: Path) -> None:
    smddp = replace(KIT.file("smddp"), sha256=pins.UNPINNED)
    row = replace(KIT.profile("cu124"), files={"smddp": smddp})
    no_hash = (
        "smddp 2.6.0 of profile cu124 has no sha256 in docker/pins.toml: run `python build.py pins --fetch "
        "smddp-2.6.0`, which downloads it and records its hash, or build with --without smddp."
    )
    no_locks = (
        "profile cu124 has no locks in docker/locks: run `python build.py pins --profile cu124`, which makes them."
    )
    assert [lack.refusal for lack in unpinned(row, ["train"])] == [no_hash]
    assert unpinned(row, ["serve"]) == []
    assert refusals(KIT, row, "train", tmp_path) == refusals(KIT, row, "serve", tmp_path) == [no_locks]
    for name, each in KIT.profiles.items():
        assert [refusals(KIT, each, image, LOCKS) for image in each.images] == [[]] * len(each.images), name


def test_smddp_with_another_torch_is_refused_by_both_versions() -> None:
    row = KIT.profile("cu124")
    odd = replace(row, packages={**row.packages, "torch": "2.6.0"})
    older = (
        "docker/locks/cu124/pytorch.txt is older than docker/pins.toml, which asks for torch==2.6.0 where it has 2.5.1:"
        " run `python build.py pins --profile cu124`, which locks it again."
    )
    assert refusals(KIT, odd, "serve", LOCKS) == [older]
    assert refusals(KIT, odd, "train", LOCKS) == [
        "smddp 2.6.0 is built for torch 2.5.1, and profile cu124 has torch 2.6.0: change one of the two in "
        "docker/pins.toml, or build with --without smddp.",
        older,
    ]


@pytest.mark.parametrize(
    ("profile", "image", "parts"),
    [
        ("cpu", "train", []),
        ("cu124", "train", ["gdrcopy", "cuda-compat"]),
        ("cu130", "train", ["smddp", "gdrcopy", "cuda-compat"]),
        ("cu130", "serve", ["cuda-compat"]),
    ],
)
def test_what_is_left_out_is_told_of_images_for_gpus(profile: str, image: str, parts: list[str]) -> None:
    lines = left_out(KIT.profile(profile), [image])
    assert [line.partition(": left out, ")[0] for line in lines] == parts
