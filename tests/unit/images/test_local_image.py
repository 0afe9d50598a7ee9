"""What is known of a built image from `docker image inspect`."""

from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from berth.common.errors import UserError
from berth.images.local_image import LocalImage, local_image_from
from berth.images.selection import SelectedImage, select_image

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
    selected = SelectedImage("berth-train:cu130", "sha256:0", "train", "cu130", derived=False, attrs=attrs)
    return local_image_from(selected, info)


def test_an_image_that_is_not_built_says_how_to_build_it() -> None:
    def get(tag: str) -> Any:
        raise ImageNotFound(f"no {tag}")

    client: Any = SimpleNamespace(images=SimpleNamespace(get=get))
    with pytest.raises(UserError) as refusal:
        select_image(client, "train", "cu124")
    assert str(refusal.value) == (
        "there is no image berth-train:cu124 here: build it with `python build.py build train --profile cu124`."
    )


def test_a_profile_that_there_is_not_is_what_is_wrong() -> None:
    with pytest.raises(UserError, match=r"^there is no profile 'cu125'; docker/pins\.toml has .*did you mean cu124\?"):
        select_image(SimpleNamespace(), "train", "cu125")  # type: ignore[arg-type]  # the engine is not asked


def test_an_image_is_known_by_its_exact_tag_and_its_versions() -> None:
    build = "berth-train:build-0.1.0-cu130-1a2b3c4d5e6f"
    found = local_image(inspected(RepoTags=["berth-train:cu130", build]))
    assert (found.build_name, found.push_tag) == (build, "build-0.1.0-cu130-1a2b3c4d5e6f")
    assert found.pins == {"efa": "1.47.0", "smddp": "none"}
    assert not found.dirty


@pytest.mark.parametrize(("revision", "dirty"), [("1a2b3c4d5e6f-dirty", True), ("none", False)])
def test_images_of_no_one_commit_are_told_apart_by_their_ids(revision: str, dirty: bool) -> None:
    ids = [f"sha256:{number:064x}" for number in (0x1 << 252, 0x2 << 252)]
    found = [local_image(inspected(revision, Id=each)) for each in ids]
    assert [each.push_tag for each in found] == [f"build-0.1.0-cu130-{revision}-{n}0000000" for n in (1, 2)]
    assert found[0].dirty == dirty


def test_an_image_of_plain_docker_build_goes_by_the_name_that_the_engine_has_for_it() -> None:
    plain = {"berth.kit": "train", "berth.profile": "cu130", f"{OCI}.version": "0.1.0", "berth.left-out": "efa"}
    found = local_image(inspected(Config={"Labels": plain}))
    assert (found.build_name, found.revision, found.pins) == ("berth-train:cu130", "none", {})


CONTAINERD = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}


@pytest.mark.parametrize(
    ("info", "id_is_config", "docker"),
    [
        ({"DriverStatus": [["Backing Filesystem", "extfs"]]}, True, True),
        ({"DriverStatus": None}, True, True),
        (CONTAINERD, False, False),
        ({"BuildahVersion": "1.41"}, False, False),
    ],
    ids=["Docker's own store", "no status", "containerd before API 1.48", "podman"],
)
def test_an_engine_that_does_not_name_its_manifests_is_known_by_its_info(
    info: dict[str, Any], id_is_config: bool, docker: bool
) -> None:
    found = local_image(inspected(), info)
    assert (found.id_is_config, found.pushes_docker_manifest) == (id_is_config, docker)
    named = inspected(Descriptor={"mediaType": "application/vnd.docker.distribution.manifest.v2+json"})
    assert local_image(named, CONTAINERD).pushes_docker_manifest


@pytest.mark.parametrize(
    ("descriptor", "id_is_config", "docker"),
    [
        ({}, True, True),
        ({"Descriptor": {"mediaType": "application/vnd.docker.distribution.manifest.v2+json"}}, False, True),
        ({"Descriptor": {"mediaType": "application/vnd.oci.image.index.v1+json"}}, False, False),
    ],
    ids=["the engine's own store", "containerd, docker", "containerd, index"],
)
def test_what_an_engine_would_push_is_known_before(
    descriptor: dict[str, Any], id_is_config: bool, docker: bool
) -> None:
    found = local_image(inspected(**descriptor))
    assert (found.id_is_config, found.pushes_docker_manifest) == (id_is_config, docker)
