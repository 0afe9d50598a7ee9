"""In each Python of a rank: notes what it does to train together with the others (berth.train.rank_events).

Called by berth.train.start_hook. The libraries are watched from outside, once a program has imported them, for whatever
it does with them it is to do as it would without.
"""

import atexit
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any

from berth.runtime.log import PREFIX
from berth.train.after_import import register
from berth.train.rank_events import (
    APART,
    EVENTS_FILE_VARIABLE,
    GROUP,
    GROUP_ASKED,
    MPI,
    TOGETHER,
    UNSHARDED,
    alone_sentence,
    note,
)


def watch(environ: MutableMapping[str, str], world_size: int) -> None:
    """Have the rank's file tell of process groups, of accelerate's state and of MPI.

    Our entry's wrapper makes the file. Where a driver of SDK v3 started the rank, its first Python does, and that of
    the first rank says at its end what the entry would.
    """
    path = environ.get(EVENTS_FILE_VARIABLE)
    if not path and "SM_MASTER_ADDR" in environ:  # which only the drivers' environment has
        path = environ[EVENTS_FILE_VARIABLE] = _own_file(world_size, speaks=environ.get("RANK") == "0")
    if not path:
        return

    def say(event: str) -> None:
        note(path, event)

    # Before torch.distributed takes the function's name from there, and so before anyone else.
    register("torch.distributed.distributed_c10d", lambda module: _watch_groups(module, say))
    register("accelerate.state", lambda module: _watch_accelerate(module, say))
    # Importing it joins the others: it calls MPI_Init.
    register("mpi4py.MPI", lambda _: say(MPI))


def _own_file(world_size: int, *, speaks: bool) -> str:
    descriptor, path = tempfile.mkstemp(prefix="berth-rank-")
    os.close(descriptor)
    owner = os.getpid()

    def tell() -> None:
        if os.getpid() != owner:
            return  # a fork of this process, which ends on its own
        with contextlib.suppress(OSError):  # the program may have emptied its temporary folder
            sentence = alone_sentence([Path(path).read_text("utf-8").splitlines()], world_size)
            os.unlink(path)
            # One that failed may have been on its way to the others. Python keeps what it shows a traceback of.
            if speaks and sentence and not hasattr(sys, "last_value"):
                print(f"{PREFIX}{sentence}", flush=True)

    atexit.register(tell)
    return path


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
        kind = module.DistributedType
        event = APART if self.distributed_type == kind.NO else TOGETHER
        # Trainer and accelerate's own launcher say by this variable that fsdp was asked for.
        asked = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        if asked and self.distributed_type == getattr(kind, "MULTI_CPU", None):
            event = UNSHARDED
        if event != last:
            say(event)
            last = event

    module.AcceleratorState.__init__ = initialize
