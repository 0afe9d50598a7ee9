"""The network interfaces of this host, and the one over which hosts communicate.

root: the root of the file system; tests pass another one.
"""

from collections.abc import Sequence
from pathlib import Path

from berth.runtime.host_files import entries

_ROOT = Path("/")


def network_interfaces(root: Path = _ROOT) -> tuple[str, ...]:
    """Sorted names of the network interfaces, including lo."""
    return tuple(sorted(path.name for path in entries(root / "sys/class/net")))


def existing_interface(configured: str | None, root: Path = _ROOT) -> str:
    """The interface in the job's configuration if this host has it, else empty."""
    return configured if configured and configured in network_interfaces(root) else ""


def choose_interface(configured: str | None, available: Sequence[str], *, alone: bool) -> str:
    """The interface over which hosts communicate: SageMaker's choice if it exists, else the first that is not lo.

    Local mode of SDK v3 configures an interface that does not exist. A single host uses lo.
    """
    if alone:
        return "lo"
    if configured in available and configured is not None:
        return configured
    return next((name for name in available if name != "lo"), "lo")
