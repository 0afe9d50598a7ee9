"""Tags, labels and whole command lines of a build."""

from pathlib import Path

import pytest

from berth.images import pins
from berth.images.errors import UserError
from berth.images.plan import Base, Revision, build_plan, refusals, tags

KIT = pins.load()
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


def plan_of(image: str, profile: str = "cpu", **changes: object) -> str:
    settings: dict[str, object] = {
        "version": "0.1.0",
        "revision": CLEAN,
        "base": Base(KIT.base_image, "sha256:00"),
        "secrets": {},
        "root": Path("/kit"),
    }
    return build_plan(KIT, KIT.profile(profile), image, **{**settings, **changes}).command()  # type: ignore[arg-type]


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
    assert (
        "--build-arg PROFILE=cu130 --build-arg TORCH=2.13.0 --build-arg TORCH_INDEX=https://pypi.org/simple --label"
        in line
    )
    assert line.endswith("--tag berth-train:0.1.0-cu130-1a2b3c4d5e6f --tag berth-train:cu130 /kit")


def test_unknown_image() -> None:
    with pytest.raises(UserError, match="there is no image 'sevre': name train or serve"):
        plan_of("sevre")


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("cu130", ["profile cu130 can't be built yet"]),
        ("cu124", ["smddp 2.6.0 of profile cu124 has no sha256", "profile cu124 can't be built yet"]),
        ("cpu", []),
    ],
)
def test_refusals_name_what_is_missing(profile: str, said: list[str]) -> None:
    reasons = refusals(KIT.profile(profile), pins.ROOT / "docker" / "locks")
    assert [reason[: len(start)] for reason, start in zip(reasons, said, strict=True)] == said


def test_smddp_with_another_torch_is_refused_by_both_versions() -> None:
    row = KIT.profile("cu124")
    odd = pins.Profile(
        row.name, row.python, row.torch_index, {**row.packages, "torch": "2.6.0"}, row.budget, row.cuda, row.downloads
    )
    found = [reason for reason in refusals(odd, pins.ROOT / "docker" / "locks") if "built for torch" in reason]
    assert found == [
        "smddp 2.6.0 is built for torch 2.5.1, and profile cu124 has torch 2.6.0: change one of the two in "
        "docker/pins.toml."
    ]
