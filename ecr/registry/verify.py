"""Checks that the image in the registry is the built one and that SageMaker accepts it, and tags it.

`check_manifest` raises UserError with all faults of a manifest; `verify_and_tag` puts the final tags on a good one, and
converts it before if the engine pushed an OCI image.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.common.errors import UserError, refuse
from berth.ecr.registry.client import Registry
from berth.ecr.registry.compress import with_gzip_layers
from berth.ecr.registry.manifest import (
    IMAGE_CONFIGS,
    Manifest,
    faults,
    image_of_index,
    json_object,
    to_docker,
)


@dataclass(frozen=True)
class ExpectedImage:
    """The image on the engine: the config's digest, and the digests of the uncompressed layers, lowest first.

    config_digest: the image's ID in Docker's classic store. In containerd's store the ID is a manifest's digest, so it
    is None, and only the layers are compared.
    """

    config_digest: str | None
    diff_ids: tuple[str, ...]


ANYTHING = ExpectedImage(None, ())
"""For an image that was built elsewhere: only whether SageMaker accepts it is checked."""


def check_manifest(
    registry: Registry, repository: str, manifest: Manifest, expected: ExpectedImage
) -> Mapping[str, str]:
    """Checks a manifest, which need not be in the registry yet, unlike its config; returns the image's labels.

    UserError with all its faults.
    """
    config = _image_config(registry, repository, manifest)
    found = faults(
        manifest,
        config=config,
        expected_config_digest=expected.config_digest,
        expected_diff_ids=expected.diff_ids,
    )
    refuse(found, opening=f"{registry.host}/{repository}@{manifest.digest} is not usable on SageMaker: ")
    return _labels_in(config)


def image_labels(registry: Registry, repository: str, manifest: Manifest) -> Mapping[str, str]:
    """The labels of an image in the registry; empty for an index or an artifact."""
    return _labels_in(_image_config(registry, repository, manifest))


def _image_config(registry: Registry, repository: str, manifest: Manifest) -> Mapping[str, Any] | None:
    """The image's config; None for an index, for schema 1 and for artifacts, which have no image's config."""
    if manifest.config is None or manifest.config.media_type not in IMAGE_CONFIGS:
        return None
    return json_object(registry.blob(repository, manifest.config.digest), "the image's config")


def _labels_in(config: Mapping[str, Any] | None) -> Mapping[str, str]:
    return ((config or {}).get("config") or {}).get("Labels") or {}


def verify_and_tag(
    registry: Registry, repository: str, pushed_reference: str, final_tags: Sequence[str], expected: ExpectedImage
) -> Manifest:
    """Puts the final tags on a pushed image, and reads each back; returns its manifest.

    An index with one image for the platform, and an OCI manifest, are converted with the same blobs; uncompressed
    layers are gzipped. A correct manifest is not changed. UserError before any tag is put if the manifest can't be
    used, and if a tag can't be moved.
    """
    found = pushed = _read(registry, repository, pushed_reference)
    if found.is_index:
        found = _read(registry, repository, image_of_index(found).digest)
    found = to_docker(with_gzip_layers(registry, repository, found))
    check_manifest(registry, repository, found, expected)
    is_right = pushed.digest == found.digest
    put_tags(registry, repository, found, [tag for tag in final_tags if not (is_right and tag == pushed_reference)])
    return found


def put_tags(registry: Registry, repository: str, manifest: Manifest, tags: Sequence[str]) -> None:
    """Puts these tags on a checked manifest, and reads each back; UserError if one can't be moved."""
    for tag in tags:
        held = registry.manifest(repository, tag)
        if held is not None and held.digest == manifest.digest:
            continue
        registry.put_manifest(repository, tag, manifest)
        held = registry.manifest(repository, tag)
        if held is None or held.digest != manifest.digest:
            raise UserError(
                f"{registry.host}/{repository}:{tag} was put on {manifest.digest}, but is on "
                f"{held.digest if held else 'nothing'}: another push may have taken the tag meanwhile, run this again."
            )


def _read(registry: Registry, repository: str, reference: str) -> Manifest:
    found = registry.manifest(repository, reference)
    if found is None:
        raise UserError(
            f"{registry.host}/{repository} has no manifest {reference} after the push: check that nobody removes the "
            "repository or its images meanwhile, and push again."
        )
    return found
