"""Names of images in registries: `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`, taken apart and put together. Pure."""

import re
from dataclasses import dataclass

from berth.common.errors import UserError

# With a port, with a dot, in brackets, or localhost: without any of them it is the first part of an engine's name.
_HOST = re.compile(r"(?:localhost|\[[0-9a-fA-F:]+\]|[\w-]+(?:\.[\w-]+)+)(?::\w*)?|[\w-]+:\w+", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REFERRERS = "sha256-"


@dataclass(frozen=True, slots=True)
class Reference:
    """An image in a registry, or with neither tag nor digest the repository itself."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Host and repository, as the engine takes them."""
        return f"{self.host}/{self.repository}"

    @property
    def version(self) -> str:
        """What the registry is asked for: the digest, which can't move, before the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        """By digest where there is one: the tag next to it says nothing more."""
        return f"{self.name}@{self.digest}" if self.digest else self.name + (f":{self.tag}" if self.tag else "")


def parse(text: str, what: str) -> Reference:
    """Takes a name apart, of which repository and tag may still be none that a registry takes.

    what: the argument that it is, for UserErrors. A name without a registry is an engine's, and none of these.
    """
    name, at, digest = text.partition("@")
    host, slash, path = name.partition("/")
    repository, colon, tag = path.partition(":")
    if scheme := re.match(r"\w+://", text):
        raise UserError(f"{what} {text[:300]!r} begins with {scheme[0]}: leave that out.")
    if _HOST.fullmatch(host) and not path and (slash or host.startswith("localhost") or "." in host):
        raise UserError(f"{what} {text[:300]!r} is a registry alone: write the repository behind it, HOST/REPOSITORY.")
    if not path or not _HOST.fullmatch(host):
        raise UserError(
            f"{what} {text[:300]!r} begins with no registry: write HOST/REPOSITORY, such as "
            "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train:0.1.0."
        )
    if colon and not tag:
        raise UserError(f"{what} {text[:300]!r} has a colon without a tag behind it: give one, or leave the colon out.")
    if at and not _DIGEST.fullmatch(digest):
        raise UserError(
            f"{what} {text[:300]!r} has no digest behind its @: that is sha256: and 64 digits of 0-9 and a-f."
        )
    return Reference(host, repository, tag, digest)


def referrers_tag(digest: str) -> str:
    """Under which a registry without the referrers API lists what refers to a manifest ("Referrers Tag Schema")."""
    return digest.replace("sha256:", _REFERRERS)


def lists_referrers(tag: str) -> bool:
    """Whether a tag is of that kind."""
    return tag.startswith(_REFERRERS)
