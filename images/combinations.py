"""Which versions go together: why a combination that was asked for can't be, and which version could. Pure.

What is known stands in `Known`: docker/compatibility.json as `compatibility_table.load` gives it, and what
`known_releases.ask` adds from the index of this machine's pip for versions and projects that the table lacks.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from berth.common.errors import UserError

_WITH_NUMPY_2 = "2"
_UNDATED = ("torch", "torchvision")
"""What the hardware dictates, for which a set's day does not count."""


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A release: its day of upload, Requires-Python, the Pythons that it has wheels for (of 3.7 to 3.14; None: not
    known), its bounds on other projects by name (>=2.4; empty: any version; None: not known), and of torch the
    versions of CUDA's parts that it pins, by the names of docker/pins.toml (cuda, cudnn, nccl, triton).
    """

    day: str = ""
    requires_python: str = ""
    pythons: tuple[str, ...] | None = None
    bounds: Mapping[str, str] | None = None
    cuda: Mapping[str, str] = field(default_factory=dict)
    yanked: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of releases: project → version → row.

    `complete` are projects whose releases all stand here, so that another version was never released. `drivers` is the
    branch of NVIDIA's driver by the CUDA that it knows; `numpy_2` the day of the first numpy 2, before which no wheel
    was built against it.
    """

    releases: Mapping[str, Mapping[str, ReleaseRow]]
    complete: frozenset[str] = frozenset()
    drivers: Mapping[str, int] = field(default_factory=dict)
    numpy_2: str = ""

    def row(self, project: str, version: str) -> ReleaseRow:
        """What is known of a release; a row that says nothing where nothing is."""
        return self.releases.get(project, {}).get(self.spelt(project, version), ReleaseRow())

    def spelt(self, project: str, version: str) -> str:
        """A version as it stands here, such as 0.15.0 for 0.15; empty where it does not."""
        rows, public = self.releases.get(project, {}), _public(version)
        if public in rows:
            return public
        try:
            asked = Version(public)
        except InvalidVersion:
            return ""
        return next((each for each in rows if Version(each) == asked), "")


@dataclass(frozen=True, slots=True)
class Combination:
    """A combination: versions by project (torch's +cpu does not count), the Python of the base, the CUDA of the row's
    hardware (12.4; empty: CPU), what further requirements and constraints say as pip writes it (numpy<2), and the day
    as of which all else is resolved, empty for today.
    """

    versions: Mapping[str, str]
    python: str = "3.11"
    cuda: str = ""
    constraints: Sequence[str] = ()
    day: str = ""


@dataclass(frozen=True, slots=True)
class _Fault:
    """What can't be: a sentence without its end, and the projects that are to choose another version of."""

    says: str
    projects: tuple[str, ...]
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class _Bound:
    who: str
    project: str
    specifier: str


def faults(wanted: Combination, known: Known) -> list[str]:
    """Why the combination can't be, a sentence each, that names the two that collide and the version that could be
    chosen; empty where nothing that is known forbids it.
    """
    return [f"{fault.says}: {_remedy(fault, wanted, known)}." for fault in _faults(wanted, known)]


def newest_that_fits(project: str, wanted: Combination, known: Known, *, surely: bool = False) -> str:
    """The newest release of a project that goes with all else of the combination, whose own version of it does not
    count; empty where there is none. What is not known of a release does not forbid it: `known_releases.ask_newest`
    asks until it is; with `surely` those are taken whose bounds are known, where some are.
    """
    found = known.releases.get(project, {})
    surely = surely and any(row.bounds is not None for row in found.values())
    for version in sorted(found, key=Version, reverse=True):
        row = found[version]
        late = bool(wanted.day and row.day > wanted.day) and project not in _UNDATED
        if late or row.yanked or Version(version).is_prerelease or (surely and row.bounds is None):
            continue
        candidate = replace(wanted, versions={**wanted.versions, project: version})
        if not any(project in fault.projects for fault in _faults(candidate, known)):
            return version
    return ""


def cuda_parts_of(torch: str, known: Known) -> dict[str, str]:
    """The pins of cuda, cudnn, nccl and triton for a row of docker/pins.toml with this torch; UserError where they are
    not known.
    """
    parts = dict(known.row("torch", torch).cuda)
    if not parts:
        near = nearest(
            _public(torch), [version for version, row in known.releases.get("torch", {}).items() if row.cuda]
        )
        raise UserError(
            f"Which CUDA torch {torch} is built for is not known: choose {' or '.join(near) or 'another'}, or write "
            "cuda, cudnn, nccl and triton into its row of docker/pins.toml."
        )
    return parts


def torchvision_of(torch: str, known: Known) -> str:
    """The torchvision that is built for this torch; empty where none is known."""
    fitting = [
        version
        for version, row in known.releases.get("torchvision", {}).items()
        if (bound := (row.bounds or {}).get("torch")) and SpecifierSet(bound).contains(_public(torch))
    ]
    # Of those with an open bound, the one that came out with it.
    day = known.row("torch", torch).day
    return min(fitting, key=lambda each: _days_apart(known.row("torchvision", each).day, day), default="")


def _days_apart(one: str, other: str) -> int:
    return abs((date.fromisoformat(one) - date.fromisoformat(other)).days) if one and other else 0


def nearest(version: str, released: Sequence[str]) -> list[str]:
    """The released versions next to one that was never released: the one below, and the one above it."""
    final = sorted({Version(each) for each in released if not Version(each).is_prerelease})
    try:
        place = bisect.bisect(final, Version(version))
    except InvalidVersion:
        return [str(each) for each in final[-1:]]
    return [str(each) for each in final[max(place - 1, 0) : place + 1]]


def can_both_be(specifiers: Sequence[str], released: Sequence[str] = ()) -> bool:
    """Whether a version is within all of these: one of `released`, or where that is empty any that could be."""
    together = SpecifierSet(",".join(filter(None, specifiers)))
    points = [Version(each) for each in released] or [
        point for each in together for point in _around(Version(each.version.removesuffix(".*")))
    ]
    return not points or any(together.contains(point, prereleases=True) for point in points)


def _around(version: Version) -> list[Version]:
    """A version, and one a little above and a little below it."""
    *head, last = version.release
    while last == 0 and head:
        *head, last = head
    below = ".".join(map(str, [*head, max(last - 1, 0), 99999]))
    return [version, Version(f"{version.base_version}.1"), Version(below)]


def _public(version: str) -> str:
    return version.partition("+")[0]


def _faults(wanted: Combination, known: Known) -> Iterator[_Fault]:
    never = [project for project in wanted.versions if _never_released(project, wanted, known)]
    for project in never:
        yield from _released_faults(project, wanted, known)
    for project in wanted.versions:
        if project not in never:
            yield from _python_faults(project, wanted, known)
    yield from _cuda_faults(wanted, known)
    yield from _numpy_faults(wanted, known)
    yield from _bound_faults(wanted, known)


def _never_released(project: str, wanted: Combination, known: Known) -> bool:
    return project in known.complete and not known.spelt(project, wanted.versions[project])


def _released_faults(project: str, wanted: Combination, known: Known) -> Iterator[_Fault]:
    version = wanted.versions[project]
    near = nearest(_public(version), [each for each, row in known.releases[project].items() if not row.yanked])
    yield _Fault(
        f"{project} {version} was never released",
        (project,),
        f"the nearest {'are' if len(near) > 1 else 'is'} {' and '.join(near) or 'none'}",
    )


def allows_python(requires: str, python: str) -> bool:
    """Whether a release's Requires-Python allows a Python, such as 3.11. Like pip it ignores one that is not valid."""
    try:
        return SpecifierSet(requires).contains(f"{python}.99")
    except InvalidSpecifier:
        return True


def _python_faults(project: str, wanted: Combination, known: Known) -> Iterator[_Fault]:
    version = wanted.versions[project]
    row, base = known.row(project, version), f"the base has Python {wanted.python}"
    if not allows_python(row.requires_python, wanted.python):
        yield _Fault(f"{project} {version} is for Python {row.requires_python}, and {base}", (project,))
    elif row.pythons is not None and wanted.python not in row.pythons and (project == "torch" or row.pythons):
        has = f"wheels for Python {_listed(row.pythons)} only" if row.pythons else "no wheel for linux/amd64"
        yield _Fault(f"{project} {version} has {has}, and {base}", (project,))


def _cuda_faults(wanted: Combination, known: Known) -> Iterator[_Fault]:
    """torch for a newer CUDA than the hardware's drivers know: any minor version of one major runs on the same."""
    torch = wanted.versions.get("torch", "")
    cuda = known.row("torch", torch).cuda.get("cuda", "")
    if not cuda or not wanted.cuda or _major(cuda) <= _major(wanted.cuda):
        return
    yield _Fault(
        f"torch {torch} is built for CUDA {cuda}, which needs {_driver(cuda, known)} or newer, and the hardware is for "
        f"CUDA {wanted.cuda}, with drivers from {_driver(wanted.cuda, known).removeprefix('driver ')} on",
        ("torch",),
    )


def _numpy_faults(wanted: Combination, known: Known) -> Iterator[_Fault]:
    """A torch that was built before numpy 2 could be, with what would become numpy 2."""
    torch = wanted.versions.get("torch", "")
    day = known.row("torch", torch).day
    if not day or day >= known.numpy_2:
        return
    asked = _public(wanted.versions.get("numpy", ""))
    bounds = ",".join(
        bound.specifier for bound in _bounds(wanted, known) if bound.project == "numpy" and bound.specifier
    )
    got = asked or _newest_within(bounds, "numpy", wanted, known)
    if got and Version(got) >= Version(_WITH_NUMPY_2):
        yield _Fault(
            f"torch {torch} of {day} is built against numpy 1 (2 came on {known.numpy_2}), and numpy would be {got}",
            ("torch", "numpy") if asked else ("torch",),
            "" if asked else "add the constraint numpy<2",
        )


def _newest_within(specifier: str, project: str, wanted: Combination, known: Known) -> str:
    rows, within = known.releases.get(project, {}), SpecifierSet(specifier)
    fitting = [
        version
        for version, row in rows.items()
        if within.contains(version) and not row.yanked and not (wanted.day and row.day > wanted.day)
        if wanted.python in (row.pythons or (wanted.python,))
    ]
    return max(fitting, key=Version, default="")


def _bounds(wanted: Combination, known: Known) -> list[_Bound]:
    """All that the combination says of versions, its own choice last."""
    found = [
        _Bound(f"{project} {version}", canonicalize_name(other), specifier)
        for project, version in wanted.versions.items()
        for other, specifier in (known.row(project, version).bounds or {}).items()
    ]
    for text in wanted.constraints:
        requirement = Requirement(text)
        found.append(_Bound(f"the constraint {text}", canonicalize_name(requirement.name), str(requirement.specifier)))
    return found


def _bound_faults(wanted: Combination, known: Known) -> Iterator[_Fault]:
    bounds = [bound for bound in _bounds(wanted, known) if bound.specifier]
    for project in dict.fromkeys(bound.project for bound in bounds):
        about = [bound for bound in bounds if bound.project == project]
        if version := _public(wanted.versions.get(project, "")):
            for bound in about:
                if not SpecifierSet(bound.specifier).contains(version, prereleases=True):
                    yield _Fault(_excludes(bound, version), _of([bound], wanted, project))
        else:
            yield from _shared_faults(project, about, wanted, known)


def _shared_faults(project: str, about: Sequence[_Bound], wanted: Combination, known: Known) -> Iterator[_Fault]:
    """What several say of a project whose version is left open: two that exclude each other, or nothing to install."""
    for place, one in enumerate(about):
        for other in about[place + 1 :]:
            if not can_both_be([one.specifier, other.specifier]):
                yield _Fault(f"{_says(one)}, and {_says(other)}", _of([one, other], wanted))
    rows = known.releases.get(project, {})
    for bound in about:
        within = [row for version, row in rows.items() if SpecifierSet(bound.specifier).contains(version)]
        if within and all(row.pythons is not None and wanted.python not in row.pythons for row in within):
            yield _Fault(
                f"{_says(bound)}, of which no release has a wheel for Python {wanted.python}, the base's",
                _of([bound], wanted),
            )


def _says(bound: _Bound) -> str:
    if bound.who.startswith("the constraint"):
        return f"{bound.who} is set"
    return f"{bound.who} wants {bound.project} {bound.specifier}"


def _excludes(bound: _Bound, version: str) -> str:
    if bound.who.startswith("the constraint"):
        return f"{bound.project} is to be {version}, and {bound.who} excludes it"
    return f"{_says(bound)}, and not {version}"


def _of(bounds: Sequence[_Bound], wanted: Combination, *more: str) -> tuple[str, ...]:
    """The projects of the combination that bounds are of, whose versions could be others."""
    names = [bound.who.partition(" ")[0] for bound in bounds]
    return tuple(name for name in (*names, *more) if name in wanted.versions)


def _remedy(fault: _Fault, wanted: Combination, known: Known) -> str:
    ways = [fault.remedy] if fault.remedy else []
    fitting = {project: newest_that_fits(project, wanted, known, surely=True) for project in fault.projects}
    if not ways and (chosen := [f"{project} {version}" for project, version in fitting.items() if version]):
        ways.append(
            f"choose {' or '.join(chosen)}, the newest that {'goes' if len(chosen) == 1 else 'go'} with the rest"
        )
    if "the constraint" in fault.says:
        ways.append("take the constraint out")
    return ", or ".join(ways) or f"choose another version of {' or '.join(fault.projects) or 'one of them'}"


def _listed(pythons: Sequence[str]) -> str:
    return pythons[0] if len(pythons) == 1 else f"{pythons[0]} to {pythons[-1]}"


def _major(cuda: str) -> int:
    return int(cuda.partition(".")[0])


def _driver(cuda: str, known: Known) -> str:
    """The least driver for a CUDA: the one of its major's first version, which runs all of them."""
    first = f"{_major(cuda)}.0"
    return f"driver {known.drivers[first]}" if first in known.drivers else f"a driver for CUDA {first}"
