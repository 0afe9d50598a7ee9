"""The most memory that a container has used, by the kernel's own count of its control group."""

import os
from contextlib import closing, suppress
from pathlib import Path

from docker.models.containers import Container

from berth.common.errors import UserError

_ROOT = Path("/sys/fs/cgroup")


class PeakMemory:
    """Of the control group of a process; `close` it in the end."""

    def __init__(self, pid: int) -> None:
        """UserError if this machine's kernel counts no memory of the process."""
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
        """Bytes now."""
        return int(self._usage.read_text())

    def peak(self) -> int:
        """Bytes at most, since `reset`."""
        return int(os.pread(self._peak, 64, 0))

    def reset(self) -> None:
        """Count from now on; before Linux 6.12 with cgroup v2, where nobody can, the peak stays that of before."""
        with suppress(OSError):
            os.write(self._peak, b"0")


def peak_of(container: Container) -> int:
    """Bytes that a running container has held at most, files that the kernel keeps among them."""
    container.reload()
    with closing(PeakMemory(int(container.attrs["State"]["Pid"]))) as memory:
        return memory.peak()


def files(groups: str) -> tuple[Path, Path]:
    """Those with the peak and the usage of a process, of which /proc/PID/cgroup holds `groups`."""
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder = _ROOT / "memory" / path.lstrip("/")
            return folder / "memory.max_usage_in_bytes", folder / "memory.usage_in_bytes"
    folder = _ROOT / groups.strip().rpartition("::")[2].lstrip("/")
    return folder / "memory.peak", folder / "memory.current"
