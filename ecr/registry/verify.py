"""What lies in the registry after a push is what was built, and what SageMaker takes: checked, never taken on trust.

`check_manifest` refuses a manifest with every fault that it has; `verify_and_tag` gives a good one its final tags,
converted first where the engine could only push OCI.
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
    convertible,
    faults,
    image_of_index,
    json_object,
    to_docker,
)


@dataclass(frozen=True)
class ExpectedImage:
    """What the engine has: the config's digest, and the digests of its plain layers, lowest first.

    The image's id is the config's digest in Docker's classic store only; containerd's store has a manifest's there, so
    that config_digest is None and the layers alone are compared.
    """

    config_digest: str | None
    diff_ids: tuple[str, ...]


ANYTHING = ExpectedImage(None, ())
"""For an image that was not built here: only that SageMaker takes it is looked at."""


def check_manifest(
    registry: Registry, repository: str, manifest: Manifest, expected: ExpectedImage
) -> Mapping[str, str]:
    """The labels of the image of a manifest that is there, or will be put, and whose config is there.

    UserError with everything that is wrong with it.
    """
    config = _image_config(registry, repository, manifest)
    found = faults(
        manifest,
        config=config,
        expected_config_digest=expected.config_digest,
        expected_diff_ids=expected.diff_ids,
    )
    refuse(found, opening=f"{registry.host}/{repository}@{manifest.digest} is not what SageMaker takes: ")
    return _labels_in(config)


def image_labels(registry: Registry, repository: str, manifest: Manifest) -> Mapping[str, str]:
    """The labels of the image of a manifest in the registry; none of an index, or of what is no image."""
    return _labels_in(_image_config(registry, repository, manifest))


def _image_config(registry: Registry, repository: str, manifest: Manifest) -> Mapping[str, Any] | None:
    """None where the faults of an index or of schema 1 need none, and where another artifact's may be anything."""
    if manifest.config is None or manifest.config.media_type not in IMAGE_CONFIGS:
        return None
    return json_object(registry.blob(repository, manifest.config.digest), "the image's config")


def _labels_in(config: Mapping[str, Any] | None) -> Mapping[str, str]:
    return ((config or {}).get("config") or {}).get("Labels") or {}


def verify_and_tag(
    registry: Registry, repository: str, pushed_reference: str, final_tags: Sequence[str], expected: ExpectedImage
) -> Manifest:
    """Puts what was pushed under its final tags, each of which is read back; gives its manifest.

    An index with one image for the platform, and an OCI manifest, are converted over the same blobs, of which layers
    without compression get it; a manifest that is right stays byte for byte. UserError before any tag is put where it
    is neither, and where a tag can't be moved.
    """
    found = pushed = _read(registry, repository, pushed_reference)
    if found.is_index:
        found = _read(registry, repository, image_of_index(found).digest)
    found = with_gzip_layers(registry, repository, found)
    if convertible(found):
        found = to_docker(found)
    check_manifest(registry, repository, found, expected)
    is_right = pushed.digest == found.digest
    put_tags(registry, repository, found, [tag for tag in final_tags if not (is_right and tag == pushed_reference)])
    return found


def put_tags(registry: Registry, repository: str, manifest: Manifest, tags: Sequence[str]) -> None:
    """Puts a manifest that is right under these tags, and reads each back; UserError where one can't be moved."""
    for tag in tags:
        held = registry.manifest(repository, tag)
        if held is not None and held.digest == manifest.digest:
            continue
        registry.put_manifest(repository, tag, manifest)
        held = registry.manifest(repository, tag)
        if held is None or held.digest != manifest.digest:
            raise UserError(
                f"{registry.host}/{repository}:{tag} was put, and names {held.digest if held else 'nothing'} and not "
                f"{manifest.digest}: another push may have taken the tag meanwhile, push again."
            )


def _read(registry: Registry, repository: str, reference: str) -> Manifest:
    found = registry.manifest(repository, reference)
    if found is None:
        raise UserError(
            f"{registry.host}/{repository} has no manifest {reference}, though it was to be there: see that nobody "
            "removes the repository or its images meanwhile, and push again."
        )
    return found
