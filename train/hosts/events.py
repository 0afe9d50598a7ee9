"""What can happen on a host while a job runs.

Threads and signal handlers only put one of these on a queue; a single loop (berth.train.hosts.session) reads them and
decides, so that nothing is decided in two places at once. `SimpleQueue` is the one queue that a signal handler may put
into.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """A line that `host` sent over its rendezvous connection."""

    host: str
    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection to `host` broke or fell silent."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostPrepared:
    """This host has the program and its packages (`error` is None), or the sentence that says why not."""

    error: str | None


@dataclass(frozen=True, slots=True)
class Exited:
    """What this host launched has ended; `code` is negative for a signal, as subprocess has it."""

    code: int


@dataclass(frozen=True, slots=True)
class LauncherOverdue:
    """`what`, such as that a rank of this host failed, was `seconds` ago, and mpirun has not ended the job since."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Signalled:
    """This host's entry was sent a signal."""

    number: int


@dataclass(frozen=True, slots=True)
class StopOverdue:
    """This host's programs were told to stop, and some still run after all the time that they had."""


Event = Message | Lost | HostPrepared | Exited | LauncherOverdue | Signalled | StopOverdue
Events = SimpleQueue[Event]
