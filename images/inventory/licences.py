"""The licences inside an image: a report of its bill of materials, by licence expression, for people and for programs.

What a package does not say, and what is NVIDIA's own, is named apart: a person who passes an image on answers for both.
Of a Debian package all licences of its copyright file are joined by AND, though each holds for some of its files only.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth.images.inventory import spdx
from berth.images.inventory.cyclonedx import Bill
from berth.images.inventory.packages import BillPackage

NVIDIA = f"{spdx.REFERENCE}NVIDIA-Proprietary"
SHOWN = 12
"""Rows of the table where not all are asked for."""
_PUBLIC_DOMAIN = f"{spdx.REFERENCE}public-domain"  # as Debian writes it; it asks for nothing


@dataclass(frozen=True, slots=True)
class Licensed:
    """Packages, as `name version`, under one SPDX expression."""

    licence: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The licences of an image, the one of most packages first.

    `unknown` are packages that name none, `nvidia` those under NVIDIA's own licences, `unnamed` those whose one licence
    is not in SPDX's list.
    """

    image: str
    groups: tuple[Licensed, ...]
    unknown: tuple[str, ...]
    nvidia: tuple[str, ...]
    unnamed: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """What a person has to look at, a sentence each; empty where nothing is left open."""
        found = []
        if self.nvidia:
            found.append(
                f"NVIDIA's own licence holds for {', '.join(self.nvidia)}: read its terms on passing them on, in "
                "the License.txt of each package or at https://docs.nvidia.com/cuda/eula, before you do."
            )
        if self.unnamed:
            found.append(f"No licence of SPDX's list is named by {', '.join(self.unnamed)}: read what came with each.")
        if self.unknown:
            found.append(
                f"No licence is known of {', '.join(self.unknown)}: read what came with it, for a Debian package "
                "/usr/share/doc/NAME/copyright in the image."
            )
        return found


def report(bill: Bill) -> Report:
    """The licences of what a bill names."""
    groups: dict[str, list[BillPackage]] = {}
    for package in bill.packages:
        groups.setdefault(package.licence, []).append(package)
    unknown = groups.pop("", [])
    licensed = [Licensed(licence, _names(packages)) for licence, packages in groups.items()]
    return Report(
        bill.image,
        tuple(sorted(licensed, key=lambda each: (-len(each.packages), each.licence))),
        _names(unknown),
        _names(package for package in bill.packages if NVIDIA in package.licence),
        _names(package for package in bill.packages if _is_unnamed(package.licence)),
    )


def render(found: Report, *, everything: bool = False) -> Group:
    """A line of how much there is and the table, for a rich console.

    everything: with the names of the packages, and with the licences after the first SHOWN.
    """
    groups = [*found.groups, *([Licensed("unknown", found.unknown)] if found.unknown else [])]
    shown = groups if everything else groups[:SHOWN]
    columns = ("licence", "packages", "which") if everything else ("licence", "packages")
    table = Table(*columns, show_lines=everything)
    table.columns[0].overflow = "fold"
    table.columns[1].justify = "right"
    for group in shown:
        row = (Text(group.licence), str(len(group.packages)), Text(", ".join(group.packages)))
        table.add_row(*row[: len(columns)])
    packages = sum(len(group.packages) for group in groups)
    parts: list[RenderableType] = [
        Text(f"{found.image}: {packages} packages under {len(found.groups)} licences and groups of them"),
        table,
    ]
    if rest := groups[len(shown) :]:
        more = sum(len(group.packages) for group in rest)
        parts.append(Text(f"and {len(rest)} more with {more} packages: --all shows them, and what has each licence."))
    return Group(*parts)


def _is_unnamed(licence: str) -> bool:
    return licence.startswith(spdx.REFERENCE) and " " not in licence and licence not in (NVIDIA, _PUBLIC_DOMAIN)


def _names(packages: Iterable[BillPackage]) -> tuple[str, ...]:
    """`name version` of each, once where the image has it twice."""
    return tuple(dict.fromkeys(f"{package.name} {package.version}" for package in packages))
