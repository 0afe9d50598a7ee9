"""LocalImage from the result of `docker image inspect`."""

from typing import Any

import pytest

from berth.images.local_image import LocalImage

OCI = "org.opencontainers.image"


def inspected(revision: str = "1a2b3c4d5e6f", efa: str = "1.47.0", **more: Any) -> dict[str, Any]:
    return {
        "Id": "sha256:0",
        "Size": 30,
        "Created": "2026-11-21T00:00:00Z",
        "RootFS": {"Type": "layers", "Layers": ["sha256:1", "sha256:2"]},
        "Config": {
            "Labels": {
                "berth.kit": "train",
                "berth.profile": "cu130",
                "berth.efa": efa,
                "berth.smddp": "none",
                f"{OCI}.version": "0.1.0",
                f"{OCI}.revision": revision,
            }
        },
        **more,
    }


def local_image(attrs: dict[str, Any], info: dict[str, Any] | None = None) -> LocalImage:
    return LocalImage("berth-train:cu130", attrs["Id"], "train", "cu130", derived=False, attrs=attrs, info=info or {})


def test_local_image_has_build_name_and_versions() -> None:
    build = "berth-train:build-0.1.0-cu130-1a2b3c4d5e6f"
    found = local_image(inspected(RepoTags=["berth-train:cu130", build]))
    assert (found.build_name, found.push_tag) == (build, "build-0.1.0-cu130-1a2b3c4d5e6f")
    assert found.pins == {"efa": "1.47.0", "smddp": "none"}
    assert not found.dirty


@pytest.mark.parametrize(("revision", "dirty"), [("1a2b3c4d5e6f-dirty", True), ("none", False)])
def test_push_tag_of_dirty_or_unknown_commit_ends_in_the_id(revision: str, dirty: bool) -> None:
    ids = [f"sha256:{number:064x}" for number in (0x1 << 252, 0x2 << 252)]
    found = [local_image(inspected(revision, Id=each)) for each in ids]
    assert [each.push_tag for each in found] == [f"build-0.1.0-cu130-{revision}-{n}0000000" for n in (1, 2)]
    assert found[0].dirty == dirty


def test_image_of_plain_docker_build_keeps_its_engine_name() -> None:
    plain = {"berth.kit": "train", "berth.profile": "cu130", f"{OCI}.version": "0.1.0", "berth.left-out": "efa"}
    found = local_image(inspected(Config={"Labels": plain}))
    assert (found.build_name, found.revision, found.pins) == ("berth-train:cu130", "none", {})


CONTAINERD = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
DOCKER = {"Descriptor": {"mediaType": "application/vnd.docker.distribution.manifest.v2+json"}}
INDEX = {"Descriptor": {"mediaType": "application/vnd.oci.image.index.v1+json"}}


@pytest.mark.parametrize(
    ("described", "info", "id_is_config", "docker"),
    [
        ({}, {"DriverStatus": [["Backing Filesystem", "extfs"]]}, True, True),
        ({}, {"DriverStatus": None}, True, True),
        ({}, CONTAINERD, False, False),
        ({}, {"BuildahVersion": "1.41"}, False, False),
        (DOCKER, CONTAINERD, False, True),
        (INDEX, CONTAINERD, False, False),
        (INDEX, None, False, False),
    ],
    ids=[
        *("Docker's own store", "no status", "containerd before API 1.48", "podman"),
        *("containerd, docker", "containerd, index", "without info"),
    ],
)
def test_manifest_type_from_descriptor_or_info(
    described: dict[str, Any], info: dict[str, Any] | None, id_is_config: bool, docker: bool
) -> None:
    found = local_image(inspected(**described), info)
    assert (found.id_is_config, found.pushes_docker_manifest) == (id_is_config, docker)
