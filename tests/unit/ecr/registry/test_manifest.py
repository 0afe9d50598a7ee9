"""Manifests that SageMaker accepts, faults of others, and conversion."""

import json
from typing import Any

import pytest

from berth.common.errors import UserError
from berth.ecr.registry import manifest as manifests
from berth.ecr.registry.manifest import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    SCHEMA_1,
    Descriptor,
    Manifest,
    descriptor,
    faults,
    image_of_index,
    to_docker,
)

FOREIGN_LAYER = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
A, B, C = ("sha256:" + digit * 64 for digit in "abc")
CONFIG = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [A, B]}}


def part(media_type: str, digest: str, size: int = 10, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size, **more}


def made(media_type: str, **value: Any) -> Manifest:
    return Manifest(media_type, json.dumps({"schemaVersion": 2, "mediaType": media_type, **value}).encode())


def image_manifest(media_type: str, layers: tuple[str, ...], config: str, **value: Any) -> Manifest:
    found = [part(kind, digest, size) for kind, digest, size in zip(layers, (A, B), (100, 200), strict=False)]
    return made(media_type, config=part(config, C), layers=found, **value)


def docker(*layers: str, config: str = DOCKER_CONFIG, **value: Any) -> Manifest:
    return image_manifest(DOCKER_MANIFEST, layers or (DOCKER_LAYER, DOCKER_LAYER), config, **value)


def oci(*layers: str, config: str = OCI_CONFIG, **value: Any) -> Manifest:
    return image_manifest(OCI_MANIFEST, layers or (OCI_LAYER, OCI_LAYER), config, **value)


def index(*members: dict[str, Any], media_type: str = OCI_INDEX) -> Manifest:
    return made(media_type, manifests=list(members))


def member(digest: str, platform: str = "linux/amd64", **more: Any) -> dict[str, Any]:
    system, architecture = platform.split("/")
    return part(OCI_MANIFEST, digest, platform={"os": system, "architecture": architecture}, **more)


def all_faults(manifest: Manifest, config: dict[str, Any] | None = CONFIG, digest: str | None = C) -> list[str]:
    found = faults(manifest, config=config, expected_config_digest=digest, expected_diff_ids=(A, B))
    assert all(each.endswith(".") and "\n" not in each and ": " in each for each in found)
    return found


def test_manifest_properties() -> None:
    manifest = docker()
    assert manifest.digest == manifests.digest_of(manifest.raw)
    assert manifest.config_digest == C
    assert manifest.layers == (Descriptor(DOCKER_LAYER, A, 100), Descriptor(DOCKER_LAYER, B, 200))
    assert manifest.blobs == (Descriptor(DOCKER_CONFIG, C, 10), *manifest.layers)
    assert manifest.descriptor == Descriptor(DOCKER_MANIFEST, manifest.digest, len(manifest.raw))


def test_duplicate_layer_is_one_blob() -> None:
    twice = made(DOCKER_MANIFEST, config=part(DOCKER_CONFIG, C), layers=[part(DOCKER_LAYER, A)] * 2)
    assert len(twice.layers) == 2
    assert [blob.digest for blob in twice.blobs] == [C, A]


def test_built_manifest_has_no_faults() -> None:
    assert all_faults(docker()) == []
    assert faults(docker(), config=None, expected_config_digest=None) == []


@pytest.mark.parametrize(
    ("manifest", "beginning"),
    [
        (made(SCHEMA_1[0], fsLayers=[]), f"the manifest is Docker's schema 1 ({SCHEMA_1[0]}), which holds no config"),
        (
            index(member(A), member(B, "linux/arm64")),
            f"the manifest is an index ({OCI_INDEX}) of linux/amd64, linux/arm64, not one image: push the image alone",
        ),
        (index(media_type=DOCKER_LIST), f"the manifest is an index ({DOCKER_LIST}) of nothing, not one image"),
        (made("text/plain"), "the manifest has the unknown media type text/plain"),
        (made(""), "the manifest has the unknown media type none"),
        (oci(), f"the manifest is an OCI one ({OCI_MANIFEST}): push with `python build.py push`, which converts it"),
        (
            oci("application/vnd.in-toto+json"),
            f"the manifest is an artifact ({OCI_CONFIG}), such as an attestation, not an image",
        ),
        (
            oci("text/plain", config="application/vnd.oci.empty.v1+json", artifactType="a/b"),
            "the manifest is an artifact (a/b), such as an attestation, not an image",
        ),
        (docker(config="text/plain"), f"its config has the media type text/plain, not {DOCKER_CONFIG}"),
        (docker(DOCKER_LAYER, "text/tar+zstd"), "layer 2 of 2 has the media type text/tar+zstd"),
        (docker(DOCKER_LAYER, FOREIGN_LAYER), f"layer 2 of 2 has the media type {FOREIGN_LAYER}"),
        (docker(DOCKER_LAYER, OCI_LAYER), f"layer 2 of 2 has the media type {OCI_LAYER}, not {DOCKER_LAYER}"),
        (docker(schemaVersion=1), "its schemaVersion is 1, not 2"),
        (
            docker(mediaType=OCI_MANIFEST),
            f"its mediaType is {OCI_MANIFEST}, but the registry serves it as {DOCKER_MANIFEST}",
        ),
    ],
)
def test_faults_of_manifests(manifest: Manifest, beginning: str) -> None:
    (found,) = all_faults(manifest)
    assert found.startswith(beginning)


def test_all_faults_are_reported_together() -> None:
    config = {"os": "linux", "architecture": "arm64", "variant": "v8", "rootfs": {"diff_ids": [A, C]}}
    found = all_faults(oci("x.tar+zstd", "x.nondistributable.tar"), config, A)
    beginnings = [
        f"the manifest is an OCI one ({OCI_MANIFEST})",
        "layer 1 of 2 has the media type x.tar+zstd",
        "layer 2 of 2 has the media type x.nondistributable.tar",
        "its config is sha256",
        "the image is for linux/arm64, but SageMaker runs linux/amd64",
        "its layers are not the built ones",
    ]
    assert [each[: len(begin)] for each, begin in zip(found, beginnings, strict=True)] == beginnings


@pytest.mark.parametrize(
    ("config", "beginnings"),
    [
        ({}, ["the image is for no system/no architecture", "its config names 0 layers, the manifest 2"]),
        ({**CONFIG, "os": "windows"}, ["the image is for windows/amd64"]),
        ({**CONFIG, "rootfs": {"diff_ids": [A]}}, ["its config names 1 layers, the manifest 2"]),
        ({**CONFIG, "rootfs": "x"}, ["its config names 0 layers, the manifest 2"]),
        ({**CONFIG, "rootfs": {"diff_ids": [B, A]}}, ["its layers are not the built ones"]),
    ],
)
def test_faults_of_the_config(config: dict[str, Any], beginnings: list[str]) -> None:
    found = all_faults(docker(), config)
    assert [each[: len(start)] for each, start in zip(found, beginnings, strict=True)] == beginnings


def test_fault_for_another_config() -> None:
    assert all_faults(docker(), digest=A) == [
        f"its config is {C}, but {A} was built: another push may have taken the tag meanwhile, push again."
    ]


def test_fault_for_other_layers() -> None:
    (found,) = faults(docker(), config=CONFIG, expected_config_digest=C, expected_diff_ids=(A, B, C))
    assert found.startswith("its layers are not the built ones:")


def test_faults_for_missing_layers_and_config() -> None:
    found = all_faults(made(DOCKER_MANIFEST), config=None, digest=None)
    assert [each.partition(":")[0] for each in found] == ["the manifest has no config", "the manifest has no layers"]


def test_to_docker_keeps_the_blobs() -> None:
    manifest = oci(OCI_LAYER, DOCKER_LAYER, annotations={"org.opencontainers.image.created": "now"})
    converted = to_docker(manifest)
    assert converted.parsed == {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": part(DOCKER_CONFIG, C, 10),
        "layers": [part(DOCKER_LAYER, A, 100), part(DOCKER_LAYER, B, 200)],
    }
    assert all_faults(converted) == []
    assert to_docker(oci()).digest == converted.digest


@pytest.mark.parametrize(
    "manifest",
    [
        docker(),
        index(member(A)),
        oci("x.tar+zstd", "x.tar+zstd"),
        oci("application/vnd.oci.image.layer.v1.tar"),
        oci("application/vnd.in-toto+json"),
        made(OCI_MANIFEST, layers=[]),
        made(OCI_MANIFEST, config=part(OCI_CONFIG, C)),
    ],
)
def test_to_docker_leaves_other_manifests_unchanged(manifest: Manifest) -> None:
    assert to_docker(manifest) is manifest


@pytest.mark.parametrize(
    "members",
    [
        [member(A), member(B, "unknown/unknown")],
        [member(A), member(B, annotations={"vnd.docker.reference.type": "attestation-manifest"})],
        [member(B, "linux/arm64"), member(A)],
        [part(OCI_MANIFEST, A)],
        [member(A), member(A)],
    ],
)
@pytest.mark.parametrize("media_type", [OCI_INDEX, DOCKER_LIST])
def test_image_of_index_ignores_attestations_and_other_platforms(
    members: list[dict[str, Any]], media_type: str
) -> None:
    assert image_of_index(index(*members, media_type=media_type)).digest == A


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "has no image for linux/amd64 (it holds no image)"),
        ([member(A, "linux/arm64")], "has no image for linux/amd64 (it holds linux/arm64)"),
        ([member(B, "unknown/unknown")], "has no image for linux/amd64 (it holds no image)"),
        ([member(A), member(B)], "has 2 images for linux/amd64 (it holds linux/amd64, linux/amd64)"),
    ],
)
def test_error_for_index_with_no_or_several_images(members: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UserError, match=r"^the index sha256:") as refusal:
        image_of_index(index(*members))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {"digest": A},
        {"digest": A, "size": -1},
        {"digest": A, "size": True},
        {"digest": A, "size": 1.5},
        {"digest": "sha256:../../etc", "size": 1},
        {"digest": A + "\n", "size": 1},
        {"digest": "sha512:" + "0" * 128, "size": 1},
    ],
)
def test_invalid_descriptors_are_refused(value: object) -> None:
    with pytest.raises(UserError, match="which is not a sha256 descriptor"):
        descriptor(value)


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[]", b"1", b"{", b"[" * 100_000, b'{"a":' * 100_000])
def test_manifest_that_is_not_a_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(UserError, match=r"^the manifest is not a JSON object \("):
        all_faults(Manifest(DOCKER_MANIFEST, raw))
