"""Which versions go together: why a combination that was asked for can't be, and which version could. Pure.

What is known stands in `Known`: docker/compatibility.json as `compatibility_table.load` gives it, and what
`index_metadata.known_of` adds from the index of this machine's pip for versions and projects that the table lacks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """A release: its day of upload, Requires-Python, the Pythons that it has wheels for (3.11; of all that the table
    knows, or empty where it is not known), its bounds on other projects by name (>=2.4; empty: any version), and of
    torch the versions of CUDA's parts that it pins, by the names of docker/pins.toml (cuda, cudnn, nccl, triton).
    """

    day: str = ""
    requires_python: str = ""
    pythons: tuple[str, ...] = ()
    bounds: Mapping[str, str] = field(default_factory=dict)
    cuda: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of releases: project → version → row.

    `complete` are projects of which every final release for sale stands here, so that another version was never released.
    `drivers` is the branch of NVIDIA's driver by the CUDA that it knows; `numpy_2` the day from which on a wheel may be
    built against numpy 2.
    """

    releases: Mapping[str, Mapping[str, Row]]
    complete: frozenset[str] = frozenset()
    drivers: Mapping[str, int] = field(default_factory=dict)
    numpy_2: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A combination: versions by project (torch without +cpu counts the same), the Python of the base, the CUDA of the
    row's hardware (12.4; empty: CPU), and bounds that further requirements and constraints put on projects (numpy<2).
    """

    versions: Mapping[str, str]
    python: str = "3.11"
    cuda: str = ""
    constraints: Sequence[str] = ()


def faults(wanted: Wanted, known: Known) -> list[str]:
    """Why the combination can't be, a sentence each, that names the two that collide and the version that could be
    chosen; empty where nothing that is known forbids it.
    """
    raise NotImplementedError


def newest_that_fits(project: str, wanted: Wanted, known: Known) -> str:
    """The newest release of a project that goes with all else of the combination (its own version there is ignored);
    empty where there is none.
    """
    raise NotImplementedError


def cuda_parts_of(torch: str, known: Known) -> dict[str, str]:
    """The pins of cuda, cudnn, nccl and triton for a row of docker/pins.toml with this torch; UserError where they are
    not known.
    """
    raise NotImplementedError


def torchvision_of(torch: str, known: Known) -> str:
    """The torchvision that is built for this torch; empty where none is known."""
    raise NotImplementedError


def nearest(version: str, released: Sequence[str]) -> list[str]:
    """The released versions next to one that was never released: below and above it."""
    raise NotImplementedError


def explained(uv_says: str) -> str:
    """uv's "No solution found" as one sentence that names the two that collide; its own last line where it is another
    text.
    """
    raise NotImplementedError
