"""The manifest guard: what lies in the registry after a push is what was built, and what SageMaker takes.

Nothing about a push is left to trust: `check` reads the manifest and its config back and refuses with every fault;
`settle` gives a good manifest its final tags, converted first where the engine could only push OCI.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from berth.common.errors import UserError, refuse
from berth.ecr.registry import manifest as manifests
from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import Manifest


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


@dataclass(frozen=True)
class Checked:
    """A manifest that SageMaker takes, in the registry under `digest`, and its image's labels; `size` is what a pull
    transfers, in bytes.
    """

    manifest: Manifest
    digest: str
    size: int
    labels: Mapping[str, str]


def check(registry: Registry, repository: str, reference: str, built: ExpectedImage) -> Checked:
    """Reads back what is under a tag or digest; UserError with everything that is wrong with it."""
    return checked(registry, repository, _read(registry, repository, reference), built)


def checked(registry: Registry, repository: str, manifest: Manifest, built: ExpectedImage) -> Checked:
    """The same of a manifest that was read already, or will be put; its config is in the registry."""
    # The faults of an index or of schema 1 need no config, and the config of another artifact may be anything.
    config = None
    if manifest.config is not None and manifest.config.media_type in manifests.IMAGE_CONFIGS:
        config = manifests.json_object(registry.blob(repository, manifest.config.digest), "the image's config")
    faults = manifests.faults(
        manifest, config=config, expected_config_digest=built.config_digest, expected_diff_ids=built.diff_ids
    )
    refuse(faults, opening=f"{registry.host}/{repository}@{manifest.digest} is not what SageMaker takes: ")
    labels = ((config or {}).get("config") or {}).get("Labels") or {}
    return Checked(manifest, manifest.digest, manifest.size, labels)


def verify_and_tag(
    registry: Registry, repository: str, pushed_reference: str, final_tags: Sequence[str], built: ExpectedImage
) -> Checked:
    """Puts what was pushed under its final tags, each of which is read back; gives it with its digest.

    An index with one image for the platform, and an OCI manifest, are converted over the same blobs; a manifest that is
    right stays byte for byte. UserError before any tag is put where it is neither, and where a tag can't be moved.
    """
    found = pushed = _read(registry, repository, pushed_reference)
    if found.is_index:
        found = _read(registry, repository, manifests.image_of_index(found).digest)
    if manifests.convertible(found):
        found = manifests.to_docker(found)
    good = checked(registry, repository, found, built)
    is_right = pushed.digest == good.digest
    name(registry, repository, good, [tag for tag in final_tags if not (is_right and tag == pushed_reference)])
    return good


def name(registry: Registry, repository: str, good: Checked, tags: Sequence[str]) -> None:
    """Puts a manifest that is right under these tags, and reads each back; UserError where one can't be moved."""
    for tag in tags:
        held = registry.manifest(repository, tag)
        if held is not None and held.digest == good.digest:
            continue
        registry.put_manifest(repository, tag, good.manifest)
        held = registry.manifest(repository, tag)
        if held is None or held.digest != good.digest:
            raise UserError(
                f"{registry.host}/{repository}:{tag} was put, and names {held.digest if held else 'nothing'} and not "
                f"{good.digest}: another push may have taken the tag meanwhile, push again."
            )


def _read(registry: Registry, repository: str, reference: str) -> Manifest:
    found = registry.manifest(repository, reference)
    if found is None:
        raise UserError(
            f"{registry.host}/{repository} has no manifest {reference}, though it was to be there: see that nobody "
            "removes the repository or its images meanwhile, and push again."
        )
    return found
