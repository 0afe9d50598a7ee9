"""Names of images in registries: `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`, taken apart and put together. Pure."""

import re
from dataclasses import dataclass

from berth.images.errors import UserError

_SHAPE = re.compile(
    r"(?P<host>localhost(?::\d+)?|\[[0-9a-fA-F:]+\](?::\d+)?|[\w-]+:\d+|[\w-]+(?:\.[\w-]+)+(?::\d+)?)"
    r"/(?P<repository>[a-z0-9._/-]+)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)


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
        """By digest where there is one: the tag beside it says nothing more."""
        return f"{self.name}@{self.digest}" if self.digest else self.name + (f":{self.tag}" if self.tag else "")


def parse(text: str) -> Reference:
    """UserError says what a whole name looks like; a name without a registry is an engine's, and none of these."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UserError(
            f"{text!r} names no image in a registry: write HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:DIGEST in "
            "small letters, such as 111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train:0.1.0."
        )
    return Reference(found["host"], found["repository"], found["tag"] or "", found["digest"] or "")
