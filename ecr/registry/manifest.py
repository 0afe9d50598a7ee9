"""Manifests: parsing, checks for SageMaker, and conversion. Pure functions over bytes.

SageMaker accepts a single Docker manifest v2 schema 2 for linux/amd64 with gzip layers: no index, no OCI media types.
`faults` checks a manifest for that, `to_docker` converts an OCI manifest with the same blobs, and `image_of_index`
finds the image in an index. Formats: the OCI image specification 1.1 and distribution's "Image Manifest V 2, Schema 2".
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from berth.common.errors import UserError

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
SCHEMA_1 = (
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
    "application/vnd.docker.distribution.manifest.v1+json",
)
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MEDIA_TYPES = (DOCKER_MANIFEST, OCI_MANIFEST, DOCKER_LIST, OCI_INDEX, *SCHEMA_1)
"""Media types of all manifests that a registry may have, the wanted one first."""

IMAGE_CONFIGS = (DOCKER_CONFIG, OCI_CONFIG)
"""Media types of an image's config; both are the same JSON."""

PLATFORM = "linux/amd64"
_INDEXES = (DOCKER_LIST, OCI_INDEX)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ATTESTATION = "vnd.docker.reference.type"
_REBUILD = "build and push it again with `python build.py push`"
_NO_ATTESTATION = "push the image alone, built with --provenance=false --sbom=false"


def digest_of(content: bytes) -> str:
    """The digest of this content, `sha256:…`."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


@dataclass(frozen=True)
class Descriptor:
    """An object that a manifest refers to; size: in bytes; platform: os/architecture, empty if not given."""

    media_type: str
    digest: str
    size: int
    platform: str = ""
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)

    def as_dict(self) -> dict[str, Any]:
        """The JSON for a manifest, without the platform: only indexes of images have one, and we write none."""
        found: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.artifact_type:
            found["artifactType"] = self.artifact_type
        if self.annotations:
            found["annotations"] = dict(self.annotations)
        return found


def descriptor(value: object) -> Descriptor:
    """A descriptor parsed from a manifest's JSON; UserError if it is invalid."""
    found: Mapping[str, Any] = value if isinstance(value, dict) else {}
    digest, size = found.get("digest"), found.get("size")
    if not (isinstance(digest, str) and is_digest(digest) and type(size) is int and size >= 0):
        raise UserError(f"a manifest points to {_short(value)}, which is not a sha256 descriptor: {_REBUILD}.")
    platform = found.get("platform")
    annotations = found.get("annotations")
    return Descriptor(
        str(found.get("mediaType", "")),
        digest,
        size,
        f"{platform.get('os')}/{platform.get('architecture')}" if isinstance(platform, dict) else "",
        str(found.get("artifactType", "")),
        {str(key): str(text) for key, text in annotations.items()} if isinstance(annotations, dict) else {},
    )


@dataclass(frozen=True)
class Manifest:
    """A manifest with its original bytes, of which its digest is made."""

    media_type: str
    raw: bytes

    @cached_property
    def digest(self) -> str:
        return digest_of(self.raw)

    @cached_property
    def parsed(self) -> dict[str, Any]:
        """Its JSON; UserError if it is not a JSON object."""
        return json_object(self.raw, "the manifest")

    @property
    def is_index(self) -> bool:
        return self.media_type in _INDEXES

    @cached_property
    def config(self) -> Descriptor | None:
        """The config's descriptor; None for an index and for schema 1, which have no config."""
        found = self.parsed.get("config")
        return None if found is None else descriptor(found)

    @property
    def config_digest(self) -> str | None:
        return self.config.digest if self.config else None

    @cached_property
    def layers(self) -> tuple[Descriptor, ...]:
        """The layers, lowest first."""
        return tuple(descriptor(each) for each in _list(self.parsed.get("layers")))

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """The config, then the layers, each blob once."""
        found = {each.digest: each for each in (*((self.config,) if self.config else ()), *self.layers)}
        return tuple(found.values())

    @property
    def descriptor(self) -> Descriptor:
        """A descriptor that refers to it."""
        return Descriptor(self.media_type, self.digest, len(self.raw))


def json_object(raw: bytes, what: str) -> dict[str, Any]:
    """Parses a JSON object from a registry; UserError, with the name `what`, if it is not one."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{what} is not a JSON object ({_short(raw)}): check the registry, and proxies in front of it.")
    return found


def dumped(value: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest that we write: the same value always gives the same bytes, and so the same digest."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def faults(
    manifest: Manifest,
    *,
    config: Mapping[str, Any] | None,
    expected_config_digest: str | None,
    expected_diff_ids: Sequence[str] = (),
) -> list[str]:
    """Why SageMaker does not accept this manifest, or how it differs from the built image; a sentence each.

    config: the JSON of its config, None if it was not read; expected_config_digest, expected_diff_ids (digests of the
    uncompressed layers, lowest first): of the built image, None or empty if unknown.
    """
    if manifest.media_type in SCHEMA_1:
        return [f"the manifest is Docker's schema 1 ({manifest.media_type}), which holds no config: {_REBUILD}."]
    if manifest.is_index:
        held = ", ".join(each.platform or "no platform" for each in _members(manifest)) or "nothing"
        return [f"the manifest is an index ({manifest.media_type}) of {held}, not one image: {_NO_ATTESTATION}."]
    if manifest.media_type not in (DOCKER_MANIFEST, OCI_MANIFEST):
        return [f"the manifest has the unknown media type {manifest.media_type or 'none'}: {_REBUILD}."]
    found = _kind_faults(manifest) + _layer_faults(manifest)
    if expected_config_digest and manifest.config_digest != expected_config_digest:
        found.append(
            f"its config is {manifest.config_digest}, but {expected_config_digest} was built: another push may have "
            "taken the tag meanwhile, push again."
        )
    if config is not None:
        found += _config_faults(manifest, config, expected_diff_ids)
    return found


def _kind_faults(manifest: Manifest) -> list[str]:
    """Faults of the manifest's and its config's types."""
    found = []
    if manifest.config is None:
        found.append(f"the manifest has no config: {_REBUILD}.")
    elif _is_artifact(manifest):
        kind = manifest.parsed.get("artifactType") or manifest.config.media_type
        return [f"the manifest is an artifact ({kind}), such as an attestation, not an image: {_NO_ATTESTATION}."]
    if manifest.media_type == OCI_MANIFEST:
        found.append(
            f"the manifest is an OCI one ({OCI_MANIFEST}): push with `python build.py push`, which converts it, or "
            "from an engine that pushes Docker's."
        )
    elif manifest.config and manifest.config.media_type != DOCKER_CONFIG:
        found.append(f"its config has the media type {manifest.config.media_type}, not {DOCKER_CONFIG}: {_REBUILD}.")
    if manifest.parsed.get("schemaVersion") != 2:
        found.append(f"its schemaVersion is {_short(manifest.parsed.get('schemaVersion'))}, not 2: {_REBUILD}.")
    named = manifest.parsed.get("mediaType", manifest.media_type)
    if named != manifest.media_type:
        found.append(
            f"its mediaType is {_short(named)}, but the registry serves it as {manifest.media_type}: {_REBUILD}."
        )
    return found


def _layer_faults(manifest: Manifest) -> list[str]:
    """Faults of the layers; none for an artifact, whose layers are documents."""
    if _is_artifact(manifest):
        return []
    if not manifest.layers:
        return [f"the manifest has no layers: {_REBUILD}."]
    gzipped = DOCKER_LAYER if manifest.media_type == DOCKER_MANIFEST else OCI_LAYER
    found = []
    for number, layer in enumerate(manifest.layers, 1):
        if layer.media_type in (gzipped, _TO_DOCKER.get(gzipped)):
            continue
        found.append(
            f"layer {number} of {len(manifest.layers)} has the media type {layer.media_type or 'none'}, not {gzipped}: "
            "push gzip layers, on a base without foreign ones."
        )
    return found


def _config_faults(manifest: Manifest, config: Mapping[str, Any], expected: Sequence[str]) -> list[str]:
    """Faults of the config's content: the platform, and the digests of the uncompressed layers."""
    if _is_artifact(manifest):
        return []
    found = []
    platform = f"{config.get('os') or 'no system'}/{config.get('architecture') or 'no architecture'}"
    if platform != PLATFORM:
        found.append(f"the image is for {platform}, but SageMaker runs {PLATFORM}: build it for that platform.")
    rootfs = config.get("rootfs")
    diff_ids = _list(rootfs.get("diff_ids") if isinstance(rootfs, dict) else None)
    if len(diff_ids) != len(manifest.layers):
        found.append(f"its config names {len(diff_ids)} layers, the manifest {len(manifest.layers)}: {_REBUILD}.")
    elif expected and diff_ids != list(expected):
        found.append("its layers are not the built ones: another push may have taken the tag, push again.")
    return found


# OCI's media types → Docker's for the same bytes. SageMaker does not accept any others.
_TO_DOCKER = {OCI_CONFIG: DOCKER_CONFIG, OCI_LAYER: DOCKER_LAYER}


def to_docker(manifest: Manifest) -> Manifest:
    """The Docker manifest with the blobs of an OCI image manifest. Annotations, which it can't have, are dropped.

    Any other manifest, and one that can't be converted (such as zstd layers), is returned as it is: `faults` says why.
    """
    is_oci = manifest.media_type == OCI_MANIFEST
    if not is_oci or manifest.config is None or _is_artifact(manifest) or _layer_faults(manifest):
        return manifest
    # An OCI manifest may contain Docker's media types, which stay.
    value = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": _as_docker(manifest.config),
        "layers": [_as_docker(layer) for layer in manifest.layers],
    }
    return Manifest(DOCKER_MANIFEST, dumped(value))


def _as_docker(part: Descriptor) -> dict[str, Any]:
    return {"mediaType": _TO_DOCKER.get(part.media_type, part.media_type), "size": part.size, "digest": part.digest}


def image_of_index(index: Manifest) -> Descriptor:
    """The only image for linux/amd64 in an index, ignoring attestations; UserError if there is none or several."""
    members = [each for each in _members(index) if not _is_attestation(each)]
    # The platform is optional in a descriptor; the config, which is checked later, has it.
    fitting = [each for each in members if each.platform in (PLATFORM, "")]
    if len({each.digest for each in fitting}) == 1:
        return fitting[0]
    held = ", ".join(each.platform or "no platform" for each in members) or "no image"
    wrong = f"{len(fitting)} images for {PLATFORM}" if fitting else f"no image for {PLATFORM}"
    raise UserError(f"the index {index.digest} has {wrong} (it holds {held}): push one image, for {PLATFORM}.")


def _members(index: Manifest) -> list[Descriptor]:
    return [descriptor(each) for each in _list(index.parsed.get("manifests"))]


def _is_attestation(member: Descriptor) -> bool:
    """By BuildKit's marks: the platform unknown/unknown, or an annotation."""
    return member.platform == "unknown/unknown" or _ATTESTATION in member.annotations


def _is_artifact(manifest: Manifest) -> bool:
    """Whether it is not an image. An attestation has an image's config, but its layers are in-toto statements."""
    attests = any("in-toto" in layer.media_type for layer in manifest.layers)
    config = manifest.config.media_type if manifest.config else ""
    other = manifest.media_type == OCI_MANIFEST and config not in ("", *_TO_DOCKER, *_TO_DOCKER.values())
    return attests or other or "artifactType" in manifest.parsed


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _short(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return " ".join(text.split())[:80]
