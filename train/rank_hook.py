"""In each Python of a rank: notes what it does to train together with the others (berth.train.rank_events).

Called by berth.train.start_hook. The libraries are watched from outside, once a program has imported them, for whatever
it does with them it is to do as it would without.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from berth.train.after_import import register
from berth.train.rank_events import APART, GROUP, GROUP_ASKED, MPI, TOGETHER, note


def watch(path: str) -> None:
    """Have the rank's file at `path` tell of process groups, of accelerate's state and of MPI."""

    def say(event: str) -> None:
        note(path, event)

    # Before torch.distributed takes the function's name from there, and so before anyone else.
    register("torch.distributed.distributed_c10d", lambda module: _watch_groups(module, say))
    register("accelerate.state", lambda module: _watch_accelerate(module, say))
    # Importing it joins the others: it calls MPI_Init.
    register("mpi4py.MPI", lambda _: say(MPI))


def _watch_groups(module: ModuleType, say: Callable[[str], None]) -> None:
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        say(GROUP_ASKED)
        result = original(*args, **kwargs)
        say(f"{GROUP}{module.get_world_size()}")
        return result

    module.init_process_group = init_process_group  # type: ignore[attr-defined]


def _watch_accelerate(module: ModuleType, say: Callable[[str], None]) -> None:
    """Of AcceleratorState, which an Accelerator makes, and so a Trainer: a PartialState is also made by programs that
    train without accelerate. It is one state, made anew at each look at it.
    """
    original = module.AcceleratorState.__init__
    last = ""

    @functools.wraps(original)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal last
        original(self, *args, **kwargs)
        event = APART if self.distributed_type == module.DistributedType.NO else TOGETHER
        if event != last:
            say(event)
            last = event

    module.AcceleratorState.__init__ = initialize
