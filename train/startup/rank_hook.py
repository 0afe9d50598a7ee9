"""In each Python of a rank: notes what it does to train together with the others (berth.train.startup.rank_events).

Called by berth.train.startup.start_hook. Hooks only observe: the program must behave as if they were not there.
"""

import atexit
import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from berth.runtime.log import PREFIX
from berth.train.startup.after_import import register
from berth.train.startup.first_step import FirstStep
from berth.train.startup.rank_events import (
    APART,
    EVENTS_FILE_VARIABLE,
    GROUP,
    GROUP_ASKED,
    LAUNCHED,
    MPI,
    TOGETHER,
    UNSHARDED,
    alone_sentence,
    largest_group,
    note,
    script_sentence,
)


def watch(environ: MutableMapping[str, str], world_size: int) -> None:
    """Have the rank's file tell of process groups, of accelerate's state and of MPI.

    Our entry's wrapper makes the file. Where a driver of SDK v3 started the rank, its first Python does, and that of
    the first rank says at its end what the entry would.
    """
    path = environ.get(EVENTS_FILE_VARIABLE)
    if not path and "SM_MASTER_ADDR" in environ:  # which only the drivers' environment has
        speaks = environ.get("RANK") == "0"
        path = _own_file(environ, lambda ranks: alone_sentence(ranks, world_size) if speaks else "")
    if path:
        several = environ.get("OMPI_COMM_WORLD_SIZE", "1") != "1"
        if several and environ.get("GROUP_WORLD_SIZE") == "1":
            note(path, LAUNCHED)  # torchrun's variable: how many hosts it spans
        _watch(path)


def watch_script(environ: MutableMapping[str, str], gpus: int) -> None:
    """Have a script that SDK v3 runs once on each host say first and last that the host's other `gpus`, or the other
    hosts, take no part; not last where it has formed a process group with them.
    """
    sentence = script_sentence(gpus, len(json.loads(environ.get("SM_HOSTS") or "[]")))
    if sentence and EVENTS_FILE_VARIABLE not in environ:  # a Python may read its start-up files twice
        print(f"{PREFIX}{sentence}", flush=True)
        _watch(_own_file(environ, lambda ranks: sentence if largest_group(ranks) < 2 else ""))


def _watch(path: str) -> None:
    """Note what this process does in the file at `path`."""

    def say(event: str) -> None:
        note(path, event)

    first_step = FirstStep(say)
    # Before torch.distributed takes the functions' names from there, and so before anyone else.
    register("torch.distributed.distributed_c10d", lambda module: _watch_groups(module, say))
    register("torch.distributed.distributed_c10d", first_step.watch_exchanges)
    register("torch.optim.optimizer", first_step.watch_optimizers)
    register("torch._dynamo.eval_frame", first_step.hide)
    register("accelerate.state", lambda module: _watch_accelerate(module, say))
    # Importing it joins the others: it calls MPI_Init.
    register("mpi4py.MPI", lambda _: say(MPI))


def _own_file(environ: MutableMapping[str, str], to_say: Callable[[Sequence[Sequence[str]]], str]) -> str:
    """Make this process' file, known to its children by `environ`. `to_say`: its events → what to print at the end."""
    descriptor, path = tempfile.mkstemp(prefix="berth-rank-")
    os.close(descriptor)
    environ[EVENTS_FILE_VARIABLE] = path
    owner = os.getpid()

    def tell() -> None:
        if os.getpid() != owner:
            return  # a fork of this process, which ends on its own
        with contextlib.suppress(OSError):  # the program may have emptied its temporary folder
            sentence = to_say([Path(path).read_text("utf-8").splitlines()])
            os.unlink(path)
            # One that failed may have been on its way to the others. Python keeps what it shows a traceback of.
            if sentence and not hasattr(sys, "last_value"):
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
