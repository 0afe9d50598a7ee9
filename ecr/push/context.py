"""What the steps of one push share: the engine, the output, and the event that stops them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import docker

from berth.ecr.push.events import LayerState

Say = Callable[[str], None]


@dataclass(frozen=True)
class PushContext:
    """Passed from `many` to the engine's push.

    say: prints a line; show: called when a layer has progressed; stopped: set by another thread, ends the push before a
    try, at the engine's next event, or in a wait.
    """

    client: docker.DockerClient
    stopped: threading.Event
    say: Say = lambda line: None
    show: Callable[[LayerState], None] = lambda state: None
