"""Whether the ranks of a host trained together: events that their programs leave in the run folder, and what they show.

A rank's file has a line for each event, written when it happens, for a program may end in any way. The wrapper makes
the file; berth.train.startup.rank_hook writes into it, in each Python of the rank, children of a shell script included.
"""

import os
from collections.abc import Sequence
from pathlib import Path

EVENTS_FILE_VARIABLE = "BERTH_RANK_EVENTS"
GROUP_ASKED, GROUP = "process group asked for", "process group of "
MPI = "mpi"
EXCHANGED, WEIGHTS = "exchanged before the first step", "weights after the first step "
APART, TOGETHER = "accelerate apart", "accelerate together"
LAUNCHED = "started by torchrun on this host alone"
UNSHARDED = "accelerate without fsdp"
"""fsdp was asked for and accelerate (1.15) took no notice: on ranks without a GPU, where Trainer then trains by DDP."""


def note(path: str, event: str) -> None:
    """Add an event to a rank's file. A disk that is full or a file that is gone is no fault of the program."""
    try:  # not contextlib's suppress, which torch.compile would compile
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, f"{event}\n".encode())
        finally:
            os.close(descriptor)
    except OSError:
        return


def read_events(folder: Path) -> list[list[str]]:
    """The events of each rank that was started on this host, in the order in which they happened."""
    return [path.read_text("utf-8", "replace").splitlines() for path in sorted(folder.iterdir())]


def largest_group(ranks: Sequence[Sequence[str]]) -> int:
    """The most ranks of a process group that one of these joined; 0 for none."""
    sizes = [event.removeprefix(GROUP) for events in ranks for event in events if event.startswith(GROUP)]
    return max((int(size) for size in sizes if size.isdigit()), default=0)


def alone_sentence(ranks: Sequence[Sequence[str]], world_size: int) -> str:
    """What a user must know of ranks that did not train together, and what to set; empty if they did, as far as this
    host's `ranks` show. `world_size` counts those of the job.
    """
    if not ranks or world_size < 2:
        return ""
    if any(LAUNCHED in events for events in ranks):
        return (
            f"{world_size} trainings ran: mpirun started the program {world_size} times, and each started ranks of its "
            "own by torchrun; leave BERTH_DISTRIBUTION out, or start the training script without torchrun"
        )
    if any(_last(events, APART, TOGETHER) == APART for events in ranks):
        return (
            f"each of the {world_size} ranks trained a model of its own, for accelerate took no part in a process "
            "group: set use_cpu=True in TrainingArguments, or ACCELERATE_USE_CPU to true in the job's environment"
        )
    if any(UNSHARDED in events for events in ranks):
        return (
            "fsdp had no effect: accelerate does not support it on ranks without a GPU, so each rank held the whole "
            "model; leave fsdp out, use instances with GPUs, or call torch's fully_shard in the program"
        )
    # If init_process_group was called and failed, its own exception is reported; add nothing.
    failed = any(_last(events, GROUP_ASKED, GROUP) == GROUP_ASKED for events in ranks)
    if failed or any(MPI in events for events in ranks):
        return ""
    if largest_group(ranks) >= world_size:
        return _differing_sentence(ranks, world_size)
    return (
        f"{world_size} ranks ran, but no process group of {world_size} was formed, without which each does the whole "
        "work: call torch.distributed.init_process_group() in the program, as Trainer and Accelerator do, or ask for "
        "no distribution to run it once"
    )


def _differing_sentence(ranks: Sequence[Sequence[str]], world_size: int) -> str:
    """The same of ranks that joined one group and then exchanged nothing over it, by their weights."""
    weights = {event for events in ranks for event in events if event.startswith(WEIGHTS)}
    if len(weights) < 2 or any(EXCHANGED in events for events in ranks):
        return ""
    return (
        f"the ranks' weights differ: the program joined {world_size} ranks in a process group and exchanged no "
        "gradients over it, so that each trained a model of its own; wrap the model in DistributedDataParallel, of "
        "torch or of smdistributed.dataparallel"
    )


def script_sentence(gpus: int, hosts: int) -> str:
    """What a user must know of a script that SDK v3 runs without distributed=, once on each of so many `hosts` with
    `gpus` each, and what to set; empty if that leaves nothing idle or apart.
    """
    parts = [f"{hosts} hosts may each train a model of their own"] if hosts > 1 else []
    if gpus > 1:
        parts.append(f"{gpus - 1} of {gpus} GPUs may stay idle")
    if not parts:
        return ""
    return (
        f"{' and '.join(parts)}, for ModelTrainer runs your script once per host unless a distribution is asked for: "
        "give it distributed=Torchrun() to run it once per GPU, or once per host without one, in one training"
    )


def _last(events: Sequence[str], *kinds: str) -> str:
    """The last event of these kinds; empty for none."""
    return next((event for event in reversed(events) if event.startswith(kinds)), "")
