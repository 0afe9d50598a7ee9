"""Verification, conversion and tags of images in the real registry."""

import gzip
from dataclasses import replace

import pytest

from berth.ecr.registry import verify
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.manifest import DOCKER_MANIFEST, Manifest, digest_of
from berth.ecr.registry.verify import ExpectedImage
from tests.registry import made_images
from tests.registry.conftest import MakeClient, refusal
from tests.registry.fault_proxy import FaultProxy

OTHER = "sha256:" + "0" * 64


def test_built_image_passes_by_tag_and_digest(client: Client) -> None:
    image = made_images.image()
    digest = made_images.put(client, "a/b", "1", image)
    assert made_images.check(client, "a/b", "1", image) == image.manifest
    assert made_images.check(client, "a/b", digest, replace(image.built, config_digest=None)) == image.manifest


def test_all_faults_of_an_image_are_reported_together(client: Client) -> None:
    image = made_images.image(platform="linux/arm64")
    made_images.put(client, "a/b", "1", image)
    sentence = refusal(lambda: made_images.check(client, "a/b", "1", ExpectedImage(OTHER, (OTHER, OTHER))))
    assert sentence.startswith(f"{client.host}/a/b@{image.manifest.digest} is not usable on SageMaker: its config is ")
    assert f"but {OTHER} was built" in sentence
    assert "the image is for linux/arm64, but SageMaker runs linux/amd64" in sentence
    assert "its layers are not the built ones" in sentence


def test_index_oci_manifest_and_attestation_are_refused(client: Client) -> None:
    image = made_images.image(oci=True)
    made_images.put_index(client, "a/b", "index", image)
    made_images.put(client, "a/b", "oci", image)
    made_images.put(client, "a/b", "attestation", made_images.attestation(image))
    assert "is an index (application/vnd.oci.image.index.v1+json) of linux/amd64, unknown/unknown" in refusal(
        lambda: made_images.check(client, "a/b", "index", image.built)
    )
    assert "the manifest is an OCI one" in refusal(lambda: made_images.check(client, "a/b", "oci", image.built))
    assert "is an artifact (application/vnd.oci.image.config.v1+json), such as an attestation" in refusal(
        lambda: made_images.check(client, "a/b", "attestation", image.built)
    )


def test_error_for_missing_manifest_after_a_push(client: Client) -> None:
    assert f"{client.host}/a/b has no manifest 1 after" in refusal(
        lambda: verify.verify_and_tag(client, "a/b", "1", ["2"], verify.ANYTHING)
    )


def test_index_with_attestation_is_converted(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image = made_images.image(oci=True)
    made_images.put_index(client, "a/b", "pushed", image)
    proxy.forget()
    verified = verify.verify_and_tag(client, "a/b", "pushed", ["1", "latest"], image.built)
    assert verified.media_type == DOCKER_MANIFEST
    assert verified.config_digest == image.built.config_digest
    assert [layer.digest for layer in verified.layers] == [layer.digest for layer in image.manifest.layers]
    for tag in ("1", "latest"):
        assert made_images.check(client, "a/b", tag, image.built) == verified
    assert proxy.uploaded() == 0


def test_oci_manifest_is_converted_under_its_tag(client: Client) -> None:
    image = made_images.image(oci=True)
    made_images.put(client, "a/b", "1", image)
    verified = verify.verify_and_tag(client, "a/b", "1", ["1"], image.built)
    assert client.manifest("a/b", "1") == verified
    assert verify.verify_and_tag(client, "a/b", "1", ["1"], image.built) == verified


@pytest.mark.parametrize("oci", [True, False])
def test_uncompressed_layers_are_gzipped(proxy: FaultProxy, client_of: MakeClient, oci: bool) -> None:
    """containerd's store pushes the uncompressed layers of a loaded base image. A second push uploads nothing."""
    client = client_of(proxy)
    image = made_images.without_compression(made_images.image((300_000, 2000), oci=oci))
    made_images.put(client, "a/b", "pushed", image)
    verified = verify.verify_and_tag(client, "a/b", "pushed", ["1"], image.built)
    assert made_images.check(client, "a/b", "1", image.built) == verified
    for layer, diff_id in zip(verified.layers, image.built.diff_ids, strict=True):
        packed = client.blob("a/b", layer.digest)
        assert digest_of(gzip.decompress(packed)) == diff_id
        assert (len(packed), packed[4:8]) == (layer.size, b"\0\0\0\0"), (
            "the size matches, and gzip's header has no time"
        )
    proxy.forget()
    assert verify.verify_and_tag(client, "a/b", "pushed", ["2"], image.built) == verified
    assert proxy.uploaded() == 0


def test_correct_manifest_is_unchanged_and_more_tags_upload_nothing(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    proxy.forget()
    assert verify.verify_and_tag(client, "a/b", "1", ["1", "2", "3"], image.built).digest == image.manifest.digest
    assert [client.manifest("a/b", tag) for tag in ("1", "2", "3")] == [image.manifest] * 3
    assert proxy.uploaded() == 0
    assert proxy.count("PUT", "manifests/") == 2


def test_unusable_image_gets_no_tag(client: Client) -> None:
    image = made_images.image(oci=True, platform="linux/arm64")
    made_images.put(client, "a/b", "pushed", image)
    assert "the image is for linux/arm64" in refusal(
        lambda: verify.verify_and_tag(client, "a/b", "pushed", ["1"], image.built)
    )
    assert client.tags("a/b") == ["pushed"]


def test_index_of_two_images_is_refused(client: Client) -> None:
    images = (made_images.image(oci=True), made_images.image(oci=True, seed=9))
    made_images.put_index(client, "a/b", "pushed", *images)
    assert "has 2 images for linux/amd64" in refusal(
        lambda: verify.verify_and_tag(client, "a/b", "pushed", ["1"], images[0].built)
    )


def test_error_for_tag_taken_by_another_push(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image, other = made_images.image(), made_images.image(seed=9)
    made_images.put(client, "a/b", "pushed", image)
    theirs = other.manifest
    proxy.answer(
        200, method="GET", path="manifests/1$", skip=1, headers={"Content-Type": theirs.media_type}, body=theirs.raw
    )
    sentence = refusal(lambda: verify.verify_and_tag(client, "a/b", "pushed", ["1"], image.built))
    assert f"/a/b:1 was put on {image.manifest.digest}, but is on {theirs.digest}" in sentence


def test_error_for_config_with_other_digest(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image, other = made_images.image(), made_images.image(platform="linux/arm64")
    made_images.put(client, "a/b", "1", other)
    proxy.answer(
        200, method="GET", path=f"blobs/{other.built.config_digest}", body=image.blobs[str(image.built.config_digest)]
    )
    sentence = refusal(lambda: made_images.check(client, "a/b", "1", ExpectedImage(None, ())))
    assert f"returned {image.built.config_digest} for {other.built.config_digest}" in sentence


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"[" * 100_000, b'{"config": 1}', b'{"config": {"digest": "x"}}'])
def test_malformed_manifest_is_one_error(proxy: FaultProxy, client_of: MakeClient, raw: bytes) -> None:
    garbage = Manifest(DOCKER_MANIFEST, raw)
    proxy.answer(200, method="GET", path="manifests", headers={"Content-Type": garbage.media_type}, body=garbage.raw)
    sentence = refusal(lambda: made_images.check(client_of(proxy), "a/b", "1", ExpectedImage(None, ())))
    assert "\n" not in sentence
