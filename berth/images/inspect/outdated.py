"""Finds insecure packages: known vulnerabilities, and Debian's security updates.

`find_outdated` asks pip-audit (advisories.py) and Debian's archive (debian.py). A service that does not answer gives a
sentence in `unanswered`. Nothing is changed. It does not look for newer releases.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth.common import engine
from berth.common.concurrency import BackgroundTask
from berth.common.engine_errors import RAISED, explain
from berth.common.errors import UserError
from berth.common.image_names import image_name
from berth.images.inspect import debian
from berth.images.inspect.advisories import Vulnerable, ask_advisories
from berth.images.inspect.debian import Update
from berth.images.locks.locked_packages import lock_texts, packages_of
from berth.images.locks.locks import LOCKS
from berth.images.network.build_network import Network
from berth.images.pins import pins

NOT_KNOWN = 3
"""The exit code if nothing insecure was found, but a service did not answer."""


@dataclass(frozen=True, slots=True)
class ImageUpdates:
    """An image's packages that are newer in Debian's archive."""

    image: str
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Outdated:
    """All results. unanswered: sentences on failed services, with a remedy. packages: how many were audited; unaudited:
    how many of them could not be checked.
    """

    vulnerable: tuple[Vulnerable, ...] = ()
    debian: tuple[ImageUpdates, ...] = ()
    unanswered: tuple[str, ...] = ()
    packages: int = 0
    unaudited: int = 0

    @property
    def insecure(self) -> bool:
        """Whether there is a known vulnerability, or an update of Debian's security archive."""
        return bool(self.vulnerable or self._security)

    @property
    def exit_code(self) -> int:
        """1 if something is insecure, NOT_KNOWN if nothing is but a service did not answer, else 0."""
        return 1 if self.insecure else NOT_KNOWN if self.unanswered else 0

    @property
    def _security(self) -> int:
        """The number of distinct packages with an update in Debian's security archive."""
        return len({update.name for each in self.debian for update in each.updates if update.security})

    def verdict(self) -> str:
        """One line with the number of findings of each kind, and whether they are complete."""
        missing = "; incomplete, because some answers are missing: see above" if self.unanswered else ""
        vulnerable = str(len(self.vulnerable))
        if self.unaudited:
            vulnerable += f" ({self.unaudited} of {self.packages} not known)"
        return f"vulnerable packages: {vulnerable}, security updates of Debian: {self._security}{missing}."

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self) | {"insecure": self.insecure}


def find_outdated(
    all_pins: pins.Pins,
    profiles: Sequence[str],
    network: Network,
    osv_url: str | None = None,
    *,
    locks: Path = LOCKS,
    step: Callable[[str], None] = lambda done: None,
) -> Outdated:
    """Asks about the locks of these profiles and about their images on the engine.

    network: this machine's; osv_url: a service with OSV's API to ask for advisories, instead of PyPI; step: called with
    a description of each step. Raises UserError if there are no locks.
    """
    packages = packages_of(all_pins, profiles, lock_texts(locks))
    # In the background, because it waits. Debian's archive is asked here, so Ctrl-C stops its container.
    auditing = BackgroundTask(lambda: ask_advisories(packages, network, osv_url))
    answers = []
    for profile in profiles:
        for image in all_pins.profile(profile).images:
            name = image_name(image, profile)
            step(f"asking Debian's archive for updates of {name}")
            answers.append(_ask_archive(name, network))
    step(f"asking for known vulnerabilities of {len(packages)} packages")
    audit = auditing.result()
    return Outdated(
        audit.vulnerable,
        tuple(each for each in answers if isinstance(each, ImageUpdates)),
        (*filter(None, [audit.unanswered]), *(each for each in answers if isinstance(each, str))),
        audit.packages,
        audit.unknown,
    )


def _ask_archive(image: str, network: Network) -> ImageUpdates | str:
    """The updates of an image in Debian's archive; a sentence if they are unknown."""
    try:
        return ImageUpdates(image, tuple(debian.ask_archive(engine.connect(), image, network)))
    except (UserError, *RAISED) as error:
        return f"Debian's updates of {image} are not known: {explain(error) or error}"


def render(found: Outdated) -> Group:
    """Tables of the findings, then what is unknown, then the verdict, for a rich console."""
    parts: list[RenderableType] = []
    if found.vulnerable:
        table = _table("known vulnerabilities", "package", "version", "vulnerability", "fixed in", "in")
        for known in found.vulnerable:
            fixed = ", ".join(known.fixed) or "no release yet"
            table.add_row(known.name, known.version, ", ".join(known.ids), fixed, _where(known.images, known.profiles))
        parts.append(table)
    for each in found.debian:
        if each.updates:
            table = _table(f"{each.image}: newer in Debian's archive", "package", "installed", "candidate", "security")
            for update in each.updates:
                table.add_row(update.name, update.installed, update.candidate, "yes" if update.security else "")
            parts.append(table)
        else:
            parts.append(Text(f"{each.image}: Debian's archive has nothing newer."))
    parts += [Text(sentence, style="bold") for sentence in found.unanswered]
    return Group(*parts, Text(found.verdict()))


def _where(images: Sequence[str], profiles: Sequence[str]) -> str:
    return f"{', '.join(images)}: {', '.join(profiles)}" if images else "the build's tools"


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=Text(title), title_justify="left")
