"""Parses and formats names of images in registries, `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`. Pure."""

import re
from dataclasses import dataclass

from berth.common.errors import UserError
from berth.ecr.registry.manifest import is_digest

# A host has a port, a dot or brackets, or is localhost; otherwise it is the first part of a name on an engine.
_HOST = re.compile(r"(?:localhost|\[[0-9a-fA-F:]+\]|[\w-]+(?:\.[\w-]+)+)(?::\w*)?|[\w-]+:\w+", re.ASCII)
_REFERRERS = "sha256-"


@dataclass(frozen=True, slots=True)
class Reference:
    """An image in a registry; without tag and digest, the repository."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Host and repository, in the engine's syntax."""
        return f"{self.host}/{self.repository}"

    @property
    def version(self) -> str:
        """The digest, which can't move, or else the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        """With the digest if there is one, otherwise with the tag."""
        return f"{self.name}@{self.digest}" if self.digest else self.name + (f":{self.tag}" if self.tag else "")


def parse(text: str, what: str) -> Reference:
    """Parses a name. Repository and tag are not validated; a name without a registry is a UserError.

    what: the argument's name, for errors.
    """
    name, at, digest = text.partition("@")
    host, slash, path = name.partition("/")
    repository, colon, tag = path.partition(":")
    if scheme := re.match(r"\w+://", text):
        raise UserError(f"{what} {text[:300]!r} begins with {scheme[0]}: leave that out.")
    if _HOST.fullmatch(host) and not path and (slash or host.startswith("localhost") or "." in host):
        raise UserError(f"{what} {text[:300]!r} is only a registry: add the repository, HOST/REPOSITORY.")
    if not path or not _HOST.fullmatch(host):
        raise UserError(
            f"{what} {text[:300]!r} does not begin with a registry: write HOST/REPOSITORY, such as "
            "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train:0.1.0."
        )
    if colon and not tag:
        raise UserError(f"{what} {text[:300]!r} has a colon without a tag after it: add one, or remove the colon.")
    if at and not is_digest(digest):
        raise UserError(
            f"{what} {text[:300]!r} has no digest after its @: a digest is sha256: and 64 digits of 0-9 and a-f."
        )
    return Reference(host, repository, tag, digest)


def referrers_tag(digest: str) -> str:
    """The tag that lists a manifest's referrers in a registry without the referrers API ("Referrers Tag Schema")."""
    return digest.replace("sha256:", _REFERRERS)


def lists_referrers(tag: str) -> bool:
    """Whether a tag is a `referrers_tag`."""
    return tag.startswith(_REFERRERS)
