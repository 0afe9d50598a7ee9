"""docker/compatibility.json: which torch, CUDA, driver, Python and transformers go together, as the package index's own
metadata says. `python build.py pins --table` makes it; nothing in it is written by hand.

It has each release of torch from 2.0 on, with its CUDA, of the others the newest patch of each minor release, and the
drivers of contract/gpu_hosts.py.
"""

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from berth.common.errors import UserError
from berth.common.files import atomic_write
from berth.contract import gpu_hosts
from berth.images.combinations import Known, ReleaseRow
from berth.images.index_metadata import Index, Release
from berth.images.known_releases import row_of, triton
from berth.images.pins import ROOT

PATH = ROOT / "docker" / "compatibility.json"
COMMAND = "python build.py pins --table"
_FROM = {
    "torch": "2.0",
    "torchvision": "0.15",
    "transformers": "4.26",
    "accelerate": "0.16",
    "datasets": "2.9",
    "tokenizers": "0.10",
    "numpy": "1.21",
}
"""The projects of the table, each from this release on."""
_EACH_PATCH = ("torch", "torchvision", "tokenizers")
_WITHOUT_METADATA = ("tokenizers", "numpy")
"""Of these only the days, and the Pythons that they have wheels for."""
_BOUNDED = (*_FROM, "huggingface-hub", "pyarrow", "fsspec", "pandas", "safetensors")
"""The projects whose bounds are kept."""


def load(path: Path = PATH) -> Known:
    """The table as it is committed; UserError where it can't be read."""
    try:
        document = json.loads(path.read_text())
        return Known(
            releases={
                project: {version: _row(row) for version, row in rows.items()}
                for project, rows in document["releases"].items()
            },
            drivers=document["drivers"],
            numpy_2=document["numpy_2"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} can't be read ({error!r}): restore it from the repository, or run `{COMMAND}`."
        ) from None


def make(index: Index, step: Callable[[str], None]) -> dict[str, Any]:
    """The table, of what the index says now; `step` hears what is being asked. UserError where the index fails."""
    numpy = index.releases("numpy")
    releases: dict[str, dict[str, Any]] = {}
    for project in _FROM:
        chosen = chosen_releases(project, index.releases(project))
        step(f"asking for {len(chosen)} releases of {project}")
        releases[project] = {str(release.version): _entry(_asked(index, release)) for release in chosen}
    return {
        "made": f"by `{COMMAND}` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, of the package index's metadata",
        "drivers": {gpu_hosts.dotted(cuda): branch for cuda, branch in gpu_hosts.DRIVERS.items()},
        "numpy_2": min(each.day for each in numpy if each.version >= Version("2.0.0rc1")),
        "releases": releases,
    }


def write(document: Mapping[str, Any], path: Path = PATH) -> None:
    """Writes the table, a release a line, so that a diff shows what is new."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in document.items() if key != "releases"]
    lines.append('  "releases": {')
    projects = []
    for project, rows in document["releases"].items():
        inside = ",\n".join(f"      {json.dumps(version)}: {json.dumps(row)}" for version, row in rows.items())
        projects.append(f"    {json.dumps(project)}: {{\n{inside}\n    }}")
    lines += [",\n".join(projects), "  }"]
    with atomic_write(path) as new:
        new.write_text("{\n" + "\n".join(lines) + "\n}\n")


def chosen_releases(project: str, releases: Iterable[Release]) -> list[Release]:
    """Those that the table has, the newest first: final, not withdrawn, of each minor release the newest patch, where
    patches don't matter.
    """
    found: list[Release] = []
    minors = set[tuple[int, ...]]()
    for release in releases:
        minor = (*release.version.release, 0)[:2]
        final = (
            not release.yanked and not release.version.is_prerelease and any(each.is_wheel for each in release.files)
        )
        if final and release.version >= Version(_FROM[project]) and (project in _EACH_PATCH or minor not in minors):
            found.append(release)
            minors.add(minor)
    return found


def _asked(index: Index, release: Release) -> ReleaseRow:
    if release.project in _WITHOUT_METADATA:
        return row_of(release)
    metadata = index.metadata(release)
    return row_of(release, metadata, triton(index, release, metadata))


def _entry(row: ReleaseRow) -> dict[str, Any]:
    """A row as JSON, without what is empty."""
    entry: dict[str, Any] = {"day": row.day, "requires_python": row.requires_python}
    if row.pythons is not None:
        entry["pythons"] = " ".join(row.pythons)
    if row.bounds is not None:
        entry["bounds"] = {project: bound for project, bound in row.bounds.items() if project in _BOUNDED and bound}
    return entry | ({"cuda": dict(row.cuda)} if row.cuda else {})


def _row(entry: Mapping[str, Any]) -> ReleaseRow:
    pythons = entry.get("pythons")
    return ReleaseRow(
        day=entry["day"],
        requires_python=entry["requires_python"],
        pythons=None if pythons is None else tuple(pythons.split()),
        bounds=entry.get("bounds"),
        cuda=entry.get("cuda", {}),
    )
