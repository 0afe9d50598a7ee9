"""In each Python of a rank: notes the events that show whether it trains with the others (rank_events.py).

Called by berth.train.startup.start_hook. Hooks only observe: the program must behave as if they were not there.
"""

import atexit
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from berth.runtime.log import PREFIX
from berth.train.startup.after_import import register, wrap
from berth.train.startup.first_step import FirstStep
from berth.train.startup.rank_events import (
    APART,
    EVENTS_FILE_VARIABLE,
    GROUP,
    GROUP_REQUESTED,
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
    """Note process groups, accelerate's state and MPI in the rank's file.

    Our launcher's wrapper creates the file. Under a driver of SDK v3 the rank's first Python creates it, and rank 0's
    prints the warnings at its end that our launcher would print.
    """
    path = environ.get(EVENTS_FILE_VARIABLE)
    if not path and "SM_MASTER_ADDR" in environ:  # set only by SDK v3's drivers
        leads = environ.get("RANK") == "0"
        path = _create_file(environ, lambda ranks: alone_sentence(ranks, world_size) if leads else "")
    if path:
        several = environ.get("OMPI_COMM_WORLD_SIZE", "1") != "1"
        if several and environ.get("GROUP_WORLD_SIZE") == "1":
            note(path, LAUNCHED)  # torchrun's GROUP_WORLD_SIZE is its number of hosts
        _watch(path)


def watch_script(environ: MutableMapping[str, str], gpus: int) -> None:
    """For a script that SDK v3 runs once per host: print a warning, at the start and at the end, that the host's other
    `gpus` or the other hosts may not take part. There is none at the end if the script formed a process group.
    """
    sentence = script_sentence(gpus, len(json.loads(environ.get("SM_HOSTS") or "[]")))
    if sentence and EVENTS_FILE_VARIABLE not in environ:  # a Python may run its start-up files twice
        print(f"{PREFIX}{sentence}", flush=True)
        _watch(_create_file(environ, lambda ranks: sentence if largest_group(ranks) < 2 else ""))


def _watch(path: str) -> None:
    """Note this process' events in the file at `path`."""

    def say(event: str) -> None:
        note(path, event)

    first_step = FirstStep(say)
    # Called before torch.distributed, or any other module, imports the functions from there.
    register("torch.distributed.distributed_c10d", lambda module: _watch_groups(module, say))
    register("torch.distributed.distributed_c10d", first_step.watch_exchanges)
    register("torch.optim.optimizer", first_step.watch_optimizers)
    register("torch._dynamo.eval_frame", first_step.hide)
    register("accelerate.state", lambda module: _watch_accelerate(module, say))
    # Its import calls MPI_Init, which connects the ranks.
    register("mpi4py.MPI", lambda _: say(MPI))


def _create_file(environ: MutableMapping[str, str], warning: Callable[[Sequence[Sequence[str]]], str]) -> str:
    """Create the event file, and pass its path to child processes in `environ`. At exit, print `warning` of the events.

    Nothing is printed if `warning` returns an empty text, or if the program ended with an exception.
    """
    descriptor, path = tempfile.mkstemp(prefix="berth-rank-")
    os.close(descriptor)
    environ[EVENTS_FILE_VARIABLE] = path
    owner = os.getpid()

    def print_warning() -> None:
        if os.getpid() != owner:
            return  # a fork of this process
        with contextlib.suppress(OSError):  # the program may have emptied its temporary folder
            sentence = warning([Path(path).read_text("utf-8").splitlines()])
            os.unlink(path)
            # A program that failed (sys.last_value is set) may have been about to join the others.
            if sentence and not hasattr(sys, "last_value"):
                print(f"{PREFIX}{sentence}", flush=True)

    atexit.register(print_warning)
    return path


def _watch_groups(module: ModuleType, say: Callable[[str], None]) -> None:
    @wrap(module, "init_process_group")
    def init_process_group(original: Any, *args: Any, **kwargs: Any) -> Any:
        say(GROUP_REQUESTED)
        result = original(*args, **kwargs)
        say(f"{GROUP}{module.get_world_size()}")
        return result


def _watch_accelerate(module: ModuleType, say: Callable[[str], None]) -> None:
    """Watch AcceleratorState, which an Accelerator creates, and so a Trainer. Not PartialState: programs that train
    without accelerate create it, too. All AcceleratorStates share one state, so most calls repeat the last event.
    """
    last = ""

    @wrap(module.AcceleratorState, "__init__")
    def initialize(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal last
        original(self, *args, **kwargs)
        kind = module.DistributedType
        event = APART if self.distributed_type == kind.NO else TOGETHER
        # Trainer and accelerate's launcher set this variable if fsdp was requested.
        fsdp = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        if fsdp and self.distributed_type == getattr(kind, "MULTI_CPU", None):
            event = UNSHARDED
        if event != last:
            say(event)
            last = event
