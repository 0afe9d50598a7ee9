"""Replaces layers that were pushed uncompressed by gzipped copies, because SageMaker requires gzip.

containerd's image store keeps and pushes a layer as `docker load` or `docker import` got it: a base image has such a
layer if it was imported because no registry could be reached.
"""

import hashlib
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import DOCKER_LAYER, OCI_LAYER, Descriptor, Manifest, dumped

_PLAIN = {
    "application/vnd.oci.image.layer.v1.tar": OCI_LAYER,
    "application/vnd.docker.image.rootfs.diff.tar": DOCKER_LAYER,
}
"""Media type of an uncompressed layer → that of a gzipped one."""
_PIECE = 1 << 20
_GZIP = zlib.MAX_WBITS | 16
"""zlib's setting for gzip's format, without a time in the header, so that the same layer gets the same digest."""


def with_gzip_layers(registry: Registry, repository: str, manifest: Manifest) -> Manifest:
    """The manifest of the image with all layers gzipped and uploaded; the same manifest if they are gzipped already."""
    plain = {layer.digest: layer for layer in manifest.layers if layer.media_type in _PLAIN}
    if not plain:
        return manifest
    compressed = {digest: _gzipped(registry, repository, layer) for digest, layer in plain.items()}
    layers = [compressed.get(layer.digest, layer).as_dict() for layer in manifest.layers]
    return Manifest(manifest.media_type, dumped({**manifest.parsed, "layers": layers}))


def _gzipped(registry: Registry, repository: str, layer: Descriptor) -> Descriptor:
    """The descriptor of a layer's gzipped copy, which is uploaded if missing."""
    with tempfile.TemporaryFile() as file:
        packer, digest = zlib.compressobj(wbits=_GZIP), hashlib.sha256()

        def keep(packed: bytes) -> None:
            digest.update(packed)
            file.write(packed)

        for piece in registry.read_blob(repository, layer.digest):
            keep(packer.compress(piece))
        keep(packer.flush())
        found = replace(
            layer, media_type=_PLAIN[layer.media_type], digest=f"sha256:{digest.hexdigest()}", size=file.tell()
        )
        if registry.blob_size(repository, found.digest) is None:
            registry.upload_blob(repository, found.digest, found.size, lambda: _pieces(file))
    return found


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(_PIECE):
        yield piece
