"""The network interfaces of this host, and the one over which hosts talk. Each function takes the root of the file
system, so that a test can give it another one.
"""

from collections.abc import Sequence
from pathlib import Path

_ROOT = Path("/")


def network_interfaces(root: Path = _ROOT) -> tuple[str, ...]:
    """Names of the network interfaces, lo among them, in order."""
    return tuple(sorted(path.name for path in entries(root / "sys/class/net")))


def interface_here(named: str | None, root: Path = _ROOT) -> str:
    """The interface that the job names if this host has it, else empty."""
    return named if named and named in network_interfaces(root) else ""


def choose_interface(named: str | None, available: Sequence[str], *, alone: bool) -> str:
    """The interface that hosts talk over: the one that SageMaker names if it exists (local mode of SDK v3 names one
    that doesn't), else the first that is not lo. One host alone needs no network at all.
    """
    if alone:
        return "lo"
    if named in available and named is not None:
        return named
    return next((name for name in available if name != "lo"), "lo")


def entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it is missing or can't be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []
