"""Whether the ranks of a host trained together: events in a file per rank, and the warnings that follow from them.

A rank's file has a line for each event, written at once, because the program may end at any time. The rank's wrapper
creates the file; berth.train.startup.rank_hook writes to it in each Python of the rank, including child processes.
"""

import os
from collections.abc import Sequence
from pathlib import Path

EVENTS_FILE_VARIABLE = "BERTH_RANK_EVENTS"
GROUP_REQUESTED, GROUP = "process group requested", "process group of "
MPI = "mpi"
EXCHANGED, WEIGHTS = "exchanged before the first step", "weights after the first step "
APART, TOGETHER = "accelerate apart", "accelerate together"
LAUNCHED = "started by torchrun on this host alone"
UNSHARDED = "accelerate without fsdp"
"""fsdp was requested but accelerate (1.15) ignores it on ranks without a GPU; Trainer then uses DDP."""


def note(path: str, event: str) -> None:
    """Add an event to a rank's file. Errors, such as a full disk, are ignored: they must not reach the program."""
    try:  # not contextlib.suppress: torch.compile would compile it
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, f"{event}\n".encode())
        finally:
            os.close(descriptor)
    except OSError:
        return


def read_events(folder: Path) -> list[list[str]]:
    """The events of each rank on this host, in the order in which they happened."""
    return [path.read_text("utf-8", "replace").splitlines() for path in sorted(folder.iterdir())]


def largest_group(ranks: Sequence[Sequence[str]]) -> int:
    """The size of the largest process group that one of these ranks joined; 0 if none joined any."""
    sizes = [event.removeprefix(GROUP) for events in ranks for event in events if event.startswith(GROUP)]
    return max((int(size) for size in sizes if size.isdigit()), default=0)


def alone_sentence(ranks: Sequence[Sequence[str]], world_size: int) -> str:
    """A warning if the ranks did not train together, and what to set; empty if they did. `ranks`: the events of this
    host's ranks. `world_size`: the ranks of the whole job.
    """
    if not ranks or world_size < 2:
        return ""
    if any(LAUNCHED in events for events in ranks):
        return (
            f"{world_size} trainings ran: mpirun started the program {world_size} times, and each started ranks "
            "with torchrun; leave BERTH_DISTRIBUTION out, or start the training script without torchrun"
        )
    if any(_last(events, APART, TOGETHER) == APART for events in ranks):
        return (
            f"each of the {world_size} ranks trained its own model, because accelerate did not join a process group: "
            "set use_cpu=True in TrainingArguments, or ACCELERATE_USE_CPU to true in the job's environment"
        )
    if any(UNSHARDED in events for events in ranks):
        return (
            "fsdp had no effect: accelerate does not support it on ranks without a GPU, so each rank held the whole "
            "model; leave fsdp out, use instances with GPUs, or call torch's fully_shard in the program"
        )
    # If init_process_group was called and failed, its own exception is reported; add nothing.
    failed = any(_last(events, GROUP_REQUESTED, GROUP) == GROUP_REQUESTED for events in ranks)
    if failed or any(MPI in events for events in ranks):
        return ""
    if largest_group(ranks) >= world_size:
        return _differing_sentence(ranks, world_size)
    return (
        f"{world_size} ranks ran, but no process group of {world_size} was formed, so each did the whole work: "
        "call torch.distributed.init_process_group() in the program, as Trainer and Accelerator do, or ask for "
        "no distribution to run it once"
    )


def _differing_sentence(ranks: Sequence[Sequence[str]], world_size: int) -> str:
    """A warning if ranks of one process group have different weights and exchanged nothing; otherwise empty."""
    weights = {event for events in ranks for event in events if event.startswith(WEIGHTS)}
    if len(weights) < 2 or any(EXCHANGED in events for events in ranks):
        return ""
    return (
        f"the ranks' weights differ: the program joined {world_size} ranks in a process group and exchanged no "
        "gradients over it, so each trained its own model; wrap the model in DistributedDataParallel, of "
        "torch or of smdistributed.dataparallel"
    )


def script_sentence(gpus: int, hosts: int) -> str:
    """A warning for a script that SDK v3 runs once per host, without distributed=, and what to set. `gpus`: per host.

    Empty if there is only one host and at most one GPU.
    """
    parts = [f"{hosts} hosts may each train their own model"] if hosts > 1 else []
    if gpus > 1:
        parts.append(f"{gpus - 1} of {gpus} GPUs may stay idle")
    if not parts:
        return ""
    return (
        f"{' and '.join(parts)}, because ModelTrainer runs your script once per host by default: pass "
        "distributed=Torchrun() to train one model with a process per GPU, or per host without GPUs"
    )


def _last(events: Sequence[str], *kinds: str) -> str:
    """The last event that begins with one of `kinds`; empty if there is none."""
    return next((event for event in reversed(events) if event.startswith(kinds)), "")
