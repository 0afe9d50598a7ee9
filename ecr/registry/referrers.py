"""Documents attached to an image: each is an artifact that refers to the image. The image's manifest does not change.

OCI 1.1, "Guidelines for Artifact Usage": a manifest with an empty config, the document as its only layer, and the
image's manifest as `subject`. The referrers API finds it. Registries without it (the distribution registry up to 2.8)
have the tag `sha256-HEX` instead, an index that clients maintain themselves ("Referrers Tag Schema").
"""

from dataclasses import replace

from berth.common.errors import UserError
from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, descriptor, digest_of, dumped
from berth.ecr.registry.references import referrers_tag

CYCLONEDX = "application/vnd.cyclonedx+json"
"""Media type and artifact type of a bill of materials."""
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_EMPTY = b"{}"
_TRIES = 3


def upload_blobs(registry: Registry, repository: str, document: bytes) -> None:
    """Uploads the blobs to which `attach` refers; the image need not exist yet."""
    registry.put_blob(repository, _EMPTY)
    registry.put_blob(repository, document)


def attach(registry: Registry, repository: str, image: Manifest, bill: bytes) -> Manifest:
    """Attaches an uploaded bill of materials to an existing image; returns the bill's manifest.

    Attaching the same document again changes nothing, because it has the same manifest.
    """
    attachment = artifact(image.descriptor, bill)
    put(registry, repository, image.digest, attachment)
    return attachment


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
    """The documents attached to the manifest `digest`, oldest first if the registry keeps the order."""
    found = registry.referrers(repository, digest)
    return _listed(registry, repository, digest) if found is None else found


def read_manifest(registry: Registry, repository: str, document: Descriptor) -> Manifest:
    """The manifest of an attached document; UserError if it is missing."""
    manifest = registry.manifest(repository, document.digest)
    if manifest is None:
        raise UserError(
            f"{registry.host}/{repository} lists {document.digest} as attached, but does not have it: attach it again."
        )
    return manifest


def put(registry: Registry, repository: str, subject: str, attachment: Manifest) -> None:
    """Puts an artifact's manifest, whose blobs exist, and lists it for `subject`, the image's digest."""
    registry.put_manifest(repository, attachment.digest, attachment)
    if registry.referrers(repository, subject) is None:
        _list(registry, repository, subject, _entry(attachment))


def _entry(attachment: Manifest) -> Descriptor:
    """The entry in an index of referrers, with artifact type and annotations, by which readers choose."""
    kind = attachment.parsed.get("artifactType") or (attachment.config.media_type if attachment.config else "")
    annotations = attachment.parsed.get("annotations")
    return replace(attachment.descriptor, artifact_type=str(kind), annotations=annotations or {})


def _listed(registry: Registry, repository: str, digest: str) -> list[Descriptor]:
    index = registry.manifest(repository, referrers_tag(digest))
    if index is None:
        return []
    if not index.is_index:
        raise UserError(
            f"{registry.host}/{repository}:{referrers_tag(digest)} is not an index of attached documents, for which "
            "that tag is reserved: remove the tag."
        )
    return [descriptor(each) for each in index.parsed.get("manifests") or []]


def _list(registry: Registry, repository: str, digest: str, entry: Descriptor) -> None:
    """Adds an entry to the index under the tag. A parallel writer may overwrite it, so it is read again and retried."""
    for _ in range(_TRIES):
        known = _listed(registry, repository, digest)
        if any(each.digest == entry.digest for each in known):
            return
        entries = [each.as_dict() for each in (*known, entry)]
        index = Manifest(OCI_INDEX, dumped({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}))
        registry.put_manifest(repository, referrers_tag(digest), index)
    raise UserError(
        f"{registry.host}/{repository}:{referrers_tag(digest)}, the list of attached documents, is being "
        "changed by other programs: run this again when they have finished."
    )
