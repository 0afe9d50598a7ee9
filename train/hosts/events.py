"""What can happen on a host while a job runs.

Threads and signal handlers only put events on a queue. A single loop (berth.train.launching.session) reads them and
makes all decisions. `SimpleQueue` is the only queue class whose `put` is safe in a signal handler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """A message that `host` sent over its rendezvous connection."""

    host: str
    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection to `host` was closed, failed or timed out."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostPrepared:
    """The program and its packages are installed on this host (`error` is None), or `error` says why not."""

    error: str | None


@dataclass(frozen=True, slots=True)
class Exited:
    """The command that this host started has ended. `code` is subprocess' return code, negative for a signal."""

    code: int


@dataclass(frozen=True, slots=True)
class LauncherOverdue:
    """mpirun still runs `seconds` after `what` happened, for example after a rank of this host failed."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Signalled:
    """This host's entry got a signal."""

    number: int


@dataclass(frozen=True, slots=True)
class StopOverdue:
    """The time to stop is over, and some programs of this host still run."""


Event = Message | Lost | HostPrepared | Exited | LauncherOverdue | Signalled | StopOverdue
Events = SimpleQueue[Event]
