"""The most memory that a container has used, as the kernel counts it for the container's control group."""

import os
from contextlib import closing, suppress
from pathlib import Path

from docker.models.containers import Container

from berth.common.errors import UserError

_ROOT = Path("/sys/fs/cgroup")


class PeakMemory:
    """The memory counters of a process' control group; call `close` after use."""

    def __init__(self, pid: int) -> None:
        """UserError if this machine's kernel has no memory counters of the process."""
        try:
            peak, self._usage = files(Path(f"/proc/{pid}/cgroup").read_text())
            self._peak = os.open(peak, os.O_RDWR if os.access(peak, os.W_OK) else os.O_RDONLY)
        except OSError as error:
            raise UserError(
                f"The memory of a container can't be read ({error}): it must run on this machine."
            ) from None

    def close(self) -> None:
        os.close(self._peak)

    def usage(self) -> int:
        """Bytes in use now."""
        return int(self._usage.read_text())

    def peak(self) -> int:
        """The most bytes since `reset`."""
        return int(os.pread(self._peak, 64, 0))

    def reset(self) -> None:
        """Start counting the peak again. With cgroup v2 before Linux 6.12 this is impossible: the old peak stays."""
        with suppress(OSError):
            os.write(self._peak, b"0")


def peak_of(container: Container) -> int:
    """The most bytes that a running container has used, including the page cache."""
    container.reload()
    with closing(PeakMemory(int(container.attrs["State"]["Pid"]))) as memory:
        return memory.peak()


def files(groups: str) -> tuple[Path, Path]:
    """The files with the peak and the current usage; `groups` is the text of /proc/PID/cgroup."""
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder = _ROOT / "memory" / path.lstrip("/")
            return folder / "memory.max_usage_in_bytes", folder / "memory.usage_in_bytes"
    folder = _ROOT / groups.strip().rpartition("::")[2].lstrip("/")
    return folder / "memory.peak", folder / "memory.current"
