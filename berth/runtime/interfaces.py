"""The network interfaces of this host, and the one over which hosts communicate.

root: the root of the file system; tests pass another one.
"""

from collections.abc import Sequence
from pathlib import Path

_ROOT = Path("/")


def network_interfaces(root: Path = _ROOT) -> tuple[str, ...]:
    """Sorted names of the network interfaces, including lo."""
    return tuple(sorted(path.name for path in entries(root / "sys/class/net")))


def interface_here(named: str | None, root: Path = _ROOT) -> str:
    """The job's interface if this host has it, else empty."""
    return named if named and named in network_interfaces(root) else ""


def choose_interface(named: str | None, available: Sequence[str], *, alone: bool) -> str:
    """The interface over which hosts communicate: SageMaker's choice if it exists, else the first that is not lo.

    Local mode of SDK v3 names an interface that does not exist. A single host uses lo.
    """
    if alone:
        return "lo"
    if named in available and named is not None:
        return named
    return next((name for name in available if name != "lo"), "lo")


def entries(folder: Path) -> list[Path]:
    """The entries of a folder; empty if it is missing or can't be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []
