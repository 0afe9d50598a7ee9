"""Documents next to an image: each an artifact of its own that refers to the image, never an index over it.

OCI 1.1, "Guidelines for Artifact Usage": a manifest with an empty config, the document as its one layer, and `subject`,
the image's manifest. It is found again by the referrers API, or, where a registry has none (the distribution registry
up to 2.8), by the tag `sha256-HEX`, an index which the clients keep themselves ("Referrers Tag Schema").
"""

from dataclasses import replace

from berth.common.errors import UserError
from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, descriptor, digest_of, dumped
from berth.ecr.registry.references import referrers_tag

CYCLONEDX = "application/vnd.cyclonedx+json"
"""The media type, and the artifact type, of a bill of materials."""
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_EMPTY = b"{}"
_TRIES = 3


def upload_blobs(registry: Registry, repository: str, document: bytes) -> None:
    """Has what `attach` refers to in the repository; the image need not be there yet."""
    registry.put_blob(repository, _EMPTY)
    registry.put_blob(repository, document)


def attach(registry: Registry, repository: str, image: Manifest, bill: bytes) -> Manifest:
    """Attaches a bill of materials that is uploaded to an image that is there; gives its manifest.

    The same document again is the same manifest and adds nothing.
    """
    made = artifact(image.descriptor, bill)
    put(registry, repository, image.digest, made)
    return made


def artifact(subject: Descriptor, bill: bytes) -> Manifest:
    """The manifest of a bill of materials that refers to `subject`: the same bytes for the same arguments."""
    value = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": CYCLONEDX,
        "config": Descriptor(_EMPTY_TYPE, digest_of(_EMPTY), len(_EMPTY)).as_dict(),
        "layers": [Descriptor(CYCLONEDX, digest_of(bill), len(bill)).as_dict()],
        "subject": subject.as_dict(),
    }
    return Manifest(OCI_MANIFEST, dumped(value))


def attached(registry: Registry, repository: str, digest: str) -> list[Descriptor]:
    """What is attached to the manifest `digest`, oldest first where the registry keeps an order."""
    found = registry.referrers(repository, digest)
    return _listed(registry, repository, digest) if found is None else found


def read_manifest(registry: Registry, repository: str, document: Descriptor) -> Manifest:
    """The manifest of an attached document; UserError where it is gone."""
    made = registry.manifest(repository, document.digest)
    if made is None:
        raise UserError(
            f"{registry.host}/{repository} lists {document.digest} as attached, and does not have it: attach it again."
        )
    return made


def put(registry: Registry, repository: str, subject: str, made: Manifest) -> None:
    """Puts an artifact's manifest, whose blobs are there, so that it is found from `subject`, the image's digest."""
    registry.put_manifest(repository, made.digest, made)
    if registry.referrers(repository, subject) is None:
        _list(registry, repository, subject, _entry(made))


def _entry(made: Manifest) -> Descriptor:
    """As an index of referrers has it: with the artifact's type and annotations, which readers choose by."""
    kind = made.parsed.get("artifactType") or (made.config.media_type if made.config else "")
    annotations = made.parsed.get("annotations")
    return replace(made.descriptor, artifact_type=str(kind), annotations=annotations or {})


def _listed(registry: Registry, repository: str, digest: str) -> list[Descriptor]:
    index = registry.manifest(repository, referrers_tag(digest))
    if index is None:
        return []
    if not index.is_index:
        raise UserError(
            f"{registry.host}/{repository}:{referrers_tag(digest)} is no index of attached documents, which that tag "
            "is for: remove the tag."
        )
    return [descriptor(each) for each in index.parsed.get("manifests") or []]


def _list(registry: Registry, repository: str, digest: str, entry: Descriptor) -> None:
    """Adds an entry to the index under the tag; who writes at the same time may undo it, so that it is read again."""
    for _ in range(_TRIES):
        known = _listed(registry, repository, digest)
        if any(each.digest == entry.digest for each in known):
            return
        entries = [each.as_dict() for each in (*known, entry)]
        index = Manifest(OCI_INDEX, dumped({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}))
        registry.put_manifest(repository, referrers_tag(digest), index)
    raise UserError(
        f"{registry.host}/{repository}:{referrers_tag(digest)}, the list of attached documents, is written by others "
        "all the time: run this again when they are done."
    )
