"""Compares two images by layer, package and file. Pure, except for `inspect_image`, which reads one.

`compare` returns a `Difference`, `render` shows it. `unexplained` returns the differences that two builds of one commit
must not have: all except times.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from docker import DockerClient
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth.contract.words import counted
from berth.images.inspect.cyclonedx import Bill, bill_of
from berth.images.inspect.image_listing import listing_of
from berth.images.inspect.layers import SavedLayer
from berth.images.inspect.packages import BillPackage
from berth.images.inspect.saved_image import FileEntry, SavedImage, read_image
from berth.images.pins import pins_file

SHOWN_FILES = 20
"""Rows in the table of files without --all."""
_BYTECODE = re.compile(r".+\.pyc|(.+/)?__pycache__")
"""Python's bytecode and its folder. It differs whenever its source does, so it adds no information."""
_ID_LENGTH = 19  # sha256: and twelve digits


@dataclass(frozen=True, slots=True)
class InspectedImage:
    """An image with its files and its packages."""

    saved: SavedImage
    bill: Bill


@dataclass(frozen=True, slots=True)
class LayerChange:
    """A layer that only one image has, or that differs. before, after: diff_ids, empty if the image has no such layer.

    files: how many files of this layer differ in more than their time.
    """

    made_by: str
    before: str
    after: str
    files: int


@dataclass(frozen=True, slots=True)
class PackageChange:
    """A package that was added or removed, or has another version. before, after: versions, or empty."""

    kind: str
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """A path that differs. how: added, removed, content (bytes, kind or a link's target), mode (mode, owner or extended
    attributes) or time. made_by: the layer that causes the difference, of the later image if both have one.
    """

    path: str
    how: str
    before: str
    after: str
    made_by: str


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs between `before` and `after`."""

    before: str
    after: str
    layers: tuple[LayerChange, ...]
    packages: tuple[PackageChange, ...]
    files: tuple[FileChange, ...]

    def verdict(self) -> str:
        """One line with the number of differences of each kind."""
        count = Counter(change.how for change in self.files)
        if not (self.layers or self.packages or self.files):
            return f"{self.before} and {self.after} have the same contents."
        hows = [f"{count[how]} {words}" for how, words in _HOW.items() if count[how]]
        files = ", ".join(hows) if hows else "none"
        return (
            f"{self.before} and {self.after} differ in {counted(len(self.layers), 'layer')} and "
            f"{counted(len(self.packages), 'package')}; files: {files}."
        )


_HOW = {
    "added": "added",
    "removed": "removed",
    "content": "with other content",
    "mode": "with another mode or owner",
    "time": "with another time only",
}


def inspect_image(
    client: DockerClient,
    image: str,
    *,
    cache: Path | None = None,
    step: Callable[[str], None] = lambda done: None,
) -> InspectedImage:
    """Reads an image of the engine; for cache, step and errors see `read_image`."""
    found = read_image(client, image, cache=cache, step=step)
    step(f"{image}: reading the packages")
    return InspectedImage(found, bill_of(listing_of(found), pins_file.load().files))


def compare(before: InspectedImage, after: InspectedImage) -> Difference:
    """What differs between two images."""
    files = _files(before.saved, after.saved)
    seen = Counter(each.made_by for each in files if each.how != "time")
    return Difference(
        before.saved.image,
        after.saved.image,
        _layers(before.saved.layers, after.saved.layers, seen),
        tuple(package_changes(before.bill.packages, after.bill.packages)),
        files,
    )


def package_changes(before: Iterable[BillPackage], after: Iterable[BillPackage]) -> list[PackageChange]:
    """The packages that differ, by kind and name; a package with two versions in an image is one row with both."""
    old, new = _versions(before), _versions(after)
    return [
        PackageChange(*key, ", ".join(old.get(key, ())), ", ".join(new.get(key, ())))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def unexplained(difference: Difference) -> tuple[tuple[PackageChange, ...], tuple[FileChange, ...]]:
    """The packages and files that make two builds differ; files that differ only in time don't count."""
    return difference.packages, tuple(change for change in difference.files if change.how != "time")


def render(difference: Difference, *, everything: bool = False) -> Group:
    """The verdict and tables of differences, for a rich console; files that differ only in time are not shown.

    everything: also show files after the first SHOWN_FILES, and bytecode.
    """
    parts: list[RenderableType] = [Text(difference.verdict())]
    if difference.layers:
        layers = _table("layers", "layer", "before", "after", "files")
        for layer in difference.layers:
            layers.add_row(Text(layer.made_by), layer.before[:_ID_LENGTH], layer.after[:_ID_LENGTH], str(layer.files))
        parts.append(layers)
    if difference.packages:
        packages = _table("packages", "package", "kind", "before", "after")
        for package in difference.packages:
            packages.add_row(Text(package.name), package.kind, Text(package.before), Text(package.after))
        parts.append(packages)
    differing = [change for change in difference.files if change.how != "time"]
    seen = [change for change in differing if everything or not _BYTECODE.fullmatch(change.path)]
    shown = seen if everything else seen[:SHOWN_FILES]
    if shown:
        files = _table("files", "path", "how", "before", "after")
        for file in shown:
            files.add_row(Text(f"/{file.path}"), file.how, Text(file.before), Text(file.after))
        parts.append(files)
    folded, more = len(differing) - len(seen), len(seen) - len(shown)
    if folded or more:
        rest = [f"{counted(more, 'file')} more"] * bool(more)
        rest += [f"{counted(folded, 'path')} of bytecode (.pyc and __pycache__)"] * bool(folded)
        parts.append(Text(f"and {' and '.join(rest)}: --all shows them."))
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=Text(title), title_justify="left")
    for column in table.columns:
        column.overflow = "fold"  # don't truncate paths and versions
    return table


def _layers(
    before: Sequence[SavedLayer], after: Sequence[SavedLayer], files: Mapping[str, int]
) -> tuple[LayerChange, ...]:
    """Matches layers by the step that made them, so that an extra layer in the middle does not shift the rest."""
    changes = []
    matcher = SequenceMatcher(None, [each.made_by for each in before], [each.made_by for each in after], autojunk=False)
    for how, start, end, other_start, other_end in matcher.get_opcodes():
        old, new = before[start:end], after[other_start:other_end]
        if how == "equal":
            pairs = [(one, other) for one, other in zip(old, new, strict=True) if one.diff_id != other.diff_id]
            changes += [LayerChange(o.made_by, o.diff_id, n.diff_id, files.get(n.made_by, 0)) for o, n in pairs]
        else:
            changes += [LayerChange(each.made_by, each.diff_id, "", files.get(each.made_by, 0)) for each in old]
            changes += [LayerChange(each.made_by, "", each.diff_id, files.get(each.made_by, 0)) for each in new]
    return tuple(changes)


def _versions(packages: Iterable[BillPackage]) -> dict[tuple[str, str], tuple[str, ...]]:
    found: dict[tuple[str, str], set[str]] = {}
    for package in packages:
        found.setdefault((package.kind, package.name), set()).add(package.version)
    return {key: tuple(sorted(versions)) for key, versions in found.items()}


def _files(before: SavedImage, after: SavedImage) -> tuple[FileChange, ...]:
    changes = []
    shared = {each.diff_id for each in before.layers} & {each.diff_id for each in after.layers}
    for path in sorted(before.files.keys() | after.files.keys()):
        old, new = before.files.get(path), after.files.get(path)
        change = _file_change(old, new)
        if change is None:
            continue
        came_from = [each.layers[file.layer] for each, file in ((after, new), (before, old)) if file is not None]
        # A shared layer can't cause a difference; then the other image's layer does.
        last = next((layer for layer in came_from if layer.diff_id not in shared), came_from[0])
        changes.append(FileChange(path, *change, last.made_by))
    return tuple(changes)


def _file_change(old: FileEntry | None, new: FileEntry | None) -> tuple[str, str, str] | None:
    """How a file differs, with its state before and after; None if it does not."""
    if old is None or new is None:
        return ("added", "", _content(new)) if new is not None else ("removed", _content(old), "")
    if (old.kind, old.sha256, old.target) != (new.kind, new.sha256, new.target):
        return "content", _content(old), _content(new)
    if _rights(old) != _rights(new):
        return "mode", _rights(old), _rights(new)
    if old.mtime != new.mtime:
        return "time", f"{old.mtime:.0f}", f"{new.mtime:.0f}"
    return None


def _content(file: FileEntry | None) -> str:
    if file is None:
        return ""
    if file.kind == "file":
        return f"sha256:{file.sha256[:12]}, {file.size} bytes"
    return f"{file.kind} {file.target}".strip()


def _rights(file: FileEntry) -> str:
    return f"{file.mode:04o} {file.uid}:{file.gid} {file.attributes}".strip()
