"""What the steps of one push have at hand: the engine, whom to tell, and when to stop."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import docker

from berth.ecr.push.events import LayerState

Say = Callable[[str], None]


@dataclass(frozen=True)
class PushContext:
    """Handed down from the several pushes of a command to the engine's.

    say: a line for the user; show: called with each layer that went on; stopped: set by another thread, ends the push
    before a try, at its next event, or in a wait.
    """

    client: docker.DockerClient
    stopped: threading.Event
    say: Say = lambda line: None
    show: Callable[[LayerState], None] = lambda state: None
