"""Images made without an engine: a config and gzip layers as a Docker manifest, an OCI manifest or an index."""

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.ecr.registry import manifest as manifests
from berth.ecr.registry import referrers, verify
from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import Descriptor, Manifest
from berth.ecr.registry.verify import ExpectedImage


@dataclass(frozen=True)
class Image:
    """A manifest, its blobs by digest, and the image that an engine would have built."""

    manifest: Manifest
    blobs: Mapping[str, bytes]
    built: ExpectedImage


def layer(seed: int, size: int) -> tuple[bytes, str]:
    """A gzip layer of one file of so many bytes that don't compress, and its diff id."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo(f"file-{seed}")
        info.size = size
        tar.addfile(info, io.BytesIO(random.Random(seed).randbytes(size)))
    plain = packed.getvalue()
    return gzip.compress(plain, 1, mtime=0), manifests.digest_of(plain)


def image(
    sizes: Sequence[int] = (2000, 3000),
    *,
    oci: bool = False,
    seed: int = 1,
    platform: str = "linux/amd64",
    labels: Mapping[str, str] | None = None,
) -> Image:
    """An image with a layer of each size."""
    layers = [layer(seed + number, size) for number, size in enumerate(sizes)]
    system, architecture = platform.split("/")
    diff_ids = [diff_id for _, diff_id in layers]
    config = json.dumps(
        {
            "os": system,
            "architecture": architecture,
            "config": {"Labels": dict(labels)} if labels else {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
    ).encode()
    kind = manifests.OCI_MANIFEST if oci else manifests.DOCKER_MANIFEST
    value = {
        "schemaVersion": 2,
        "mediaType": kind,
        "config": part(manifests.OCI_CONFIG if oci else manifests.DOCKER_CONFIG, config),
        "layers": [part(manifests.OCI_LAYER if oci else manifests.DOCKER_LAYER, content) for content, _ in layers],
    }
    blobs = {manifests.digest_of(content): content for content in (config, *(content for content, _ in layers))}
    return Image(manifest_of(kind, value), blobs, ExpectedImage(manifests.digest_of(config), tuple(diff_ids)))


def without_compression(image: Image) -> Image:
    """The same image with uncompressed layers."""
    kind, value = image.manifest.media_type, dict(image.manifest.parsed)
    layers = [gzip.decompress(image.blobs[layer.digest]) for layer in image.manifest.layers]
    plain = "vnd.oci.image.layer.v1.tar" if kind == manifests.OCI_MANIFEST else "vnd.docker.image.rootfs.diff.tar"
    value["layers"] = [part(f"application/{plain}", content) for content in layers]
    config = {str(image.manifest.config_digest): image.blobs[str(image.manifest.config_digest)]}
    return Image(
        manifest_of(kind, value), {**config, **{manifests.digest_of(each): each for each in layers}}, image.built
    )


def check(registry: Registry, repository: str, reference: str, image: "Image | ExpectedImage") -> Manifest:
    """The manifest of a tag or digest, compared with the built image; UserError with all its faults."""
    manifest = registry.manifest(repository, reference)
    assert manifest is not None
    verify.check_manifest(registry, repository, manifest, image.built if isinstance(image, Image) else image)
    return manifest


def read_document(registry: Registry, repository: str, document: Descriptor) -> bytes:
    """The content of an attached document."""
    (layer,) = referrers.read_manifest(registry, repository, document).layers
    return registry.blob(repository, layer.digest)


def index(*members: tuple[Image, str], attests: bool = True) -> Manifest:
    """An OCI index of images and their platforms, with an attestation of the first, as BuildKit writes one."""
    entries: list[dict[str, Any]] = []
    for member, platform in members:
        system, architecture = platform.split("/")
        entry = member.manifest.descriptor.as_dict()
        entries.append({**entry, "platform": {"os": system, "architecture": architecture}})
    if attests:
        made = attestation(members[0][0])
        entries.append(
            {
                **made.manifest.descriptor.as_dict(),
                "annotations": {
                    "vnd.docker.reference.digest": members[0][0].manifest.digest,
                    "vnd.docker.reference.type": "attestation-manifest",
                },
                "platform": {"architecture": "unknown", "os": "unknown"},
            }
        )
    return manifest_of(
        manifests.OCI_INDEX, {"schemaVersion": 2, "mediaType": manifests.OCI_INDEX, "manifests": entries}
    )


def attestation(subject: Image) -> Image:
    """The manifest of a provenance attestation, as BuildKit writes one."""
    statement = json.dumps({"_type": "https://in-toto.io/Statement/v0.1", "subject": subject.manifest.digest}).encode()
    config = json.dumps({"architecture": "unknown", "os": "unknown", "rootfs": {"diff_ids": []}}).encode()
    value = {
        "schemaVersion": 2,
        "mediaType": manifests.OCI_MANIFEST,
        "config": part(manifests.OCI_CONFIG, config),
        "layers": [part("application/vnd.in-toto+json", statement)],
    }
    blobs = {manifests.digest_of(content): content for content in (config, statement)}
    return Image(manifest_of(manifests.OCI_MANIFEST, value), blobs, ExpectedImage(None, ()))


def part(media_type: str, content: bytes) -> dict[str, Any]:
    """A descriptor."""
    return Descriptor(media_type, manifests.digest_of(content), len(content)).as_dict()


def manifest_of(media_type: str, value: Mapping[str, Any]) -> Manifest:
    return Manifest(media_type, json.dumps(value).encode())


def put_blobs(registry: Registry, repository: str, image: Image) -> None:
    for content in image.blobs.values():
        assert registry.put_blob(repository, content) == "sha256:" + hashlib.sha256(content).hexdigest()


def put(registry: Registry, repository: str, tag: str, image: Image) -> str:
    """Pushes an image; returns its digest."""
    put_blobs(registry, repository, image)
    return registry.put_manifest(repository, tag, image.manifest)


def put_index(registry: Registry, repository: str, tag: str, *images: Image) -> Manifest:
    """Pushes an index of images for linux/amd64 with an attestation of the first."""
    for each in (*images, attestation(images[0])):
        put(registry, repository, each.manifest.digest, each)
    made = index(*((each, "linux/amd64") for each in images))
    registry.put_manifest(repository, tag, made)
    return made
