"""Chooses the checkpoint that a job resumes from.

A job that was stopped (spot interruption, time limit) finds its checkpoints in the checkpoint folder again, and resumes
from the newest that every rank has whole. checkpoint_folder.py lists the checkpoints; saving.py writes them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers

from berth.contract.errors import JobError
from berth.runtime.rank import Rank
from berth.train.run_qa import ranks
from berth.train.run_qa.checkpoints import checkpoint_folder, manifest
from berth.train.run_qa.checkpoints.checkpoint_folder import Checkpoint, Listing
from berth.train.run_qa.checkpoints.identity import DIFFERENCES, difference
from berth.train.run_qa.checkpoints.manifest import MANIFEST
from berth.train.run_qa.recipe import TrainingSettings

_WEIGHTS_ONLY = "it has only weights (save_only_model)"
BEGIN_AGAIN = "set overwrite_output_dir to true (and leave resume_from_checkpoint out) to start from the beginning"


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a training: the `listing` of this host's checkpoint folder, the `chosen` checkpoint to resume from
    (None: begin at step 0), and SageMaker's name of the `job`.
    """

    listing: Listing = field(default_factory=Listing)
    chosen: Checkpoint | None = None
    job: str = ""


def choose(settings: TrainingSettings, job: str, rank: Rank, say: Callable[[str], None]) -> Start:
    """Choose the checkpoint to resume from; all ranks must call it, and choose the same one. Nothing is deleted yet.

    The user's path has precedence; otherwise it is the newest checkpoint that is whole on every rank. With
    overwrite_output_dir only checkpoints of the same job count: after a spot interruption SageMaker restarts the job
    under its name, and the training must then not begin again.
    """
    folder, resume = settings.checkpoints, settings.resume
    listing = checkpoint_folder.scan(folder)
    weights_only = {each.path: _WEIGHTS_ONLY for each in listing.whole if not each.resumable}
    for path, reason in {**listing.incomplete, **listing.unusable, **weights_only}.items():
        say(f"ignoring {path}: {reason}")
    if isinstance(resume, str):
        chosen: Checkpoint | None = read_named(resume)
    else:
        usable = [each for each in listing.whole if each.resumable and (resume or each.is_of(job))]
        chosen = _newest_of_all(usable, listing, rank, say)
        if not chosen and any(ranks.gather(bool(usable), rank)):
            say(f"warning: no checkpoint in {folder} is whole on every host: training starts from the beginning")
    if chosen:
        why = "overwrite_output_dir true would start from the beginning" if resume else "this job wrote it"
        say(f"going on from {chosen.path} ({why})")
        # Trainer restores both or neither.
        has_both = any(chosen.path.glob("optimizer*")) and (chosen.path / "scheduler.pt").is_file()
        if chosen.manifest is None and not has_both:
            say(f"warning: {chosen.path} has no optimizer or no scheduler, so both start from the beginning")
    return Start(listing, chosen, job)


def _newest_of_all(
    usable: list[Checkpoint], listing: Listing, rank: Rank, say: Callable[[str], None]
) -> Checkpoint | None:
    """The newest checkpoint that all ranks list. Each rank reads only that one; if it is damaged, the next one."""
    while True:
        everyone = ranks.gather({each.path.name: list(each.recency) for each in usable}, rank)
        shared = set(everyone[0]).intersection(*everyone[1:])
        newest = max(shared, key=lambda name: everyone[0][name], default=None)
        if newest is None:
            return None
        mine = next(each for each in usable if each.path.name == newest)
        faults = ranks.gather(manifest.content_fault(mine.path, mine.manifest) if mine.manifest else "", rank)
        if not any(faults):
            return mine
        say(f"ignoring {mine.path}: {next(filter(None, faults))}")
        usable.remove(mine)
        listing.whole.remove(mine)
        if faults[rank.rank]:
            listing.incomplete[mine.path] = faults[rank.rank]


def read_named(path: str) -> Checkpoint:
    """The checkpoint at `path` (resume_from_checkpoint). Raises JobError if it is not a whole one."""
    folder = Path(path)
    content = manifest.read(folder) if (folder / MANIFEST).exists() else None
    if content is None:
        fault = checkpoint_folder.fault_of_trainers(folder)
    elif isinstance(content, str):
        fault = content
    else:
        fault = manifest.content_fault(folder, content) or ("" if content.resumable else _WEIGHTS_ONLY)
    if fault:
        raise JobError(
            f"resume_from_checkpoint {path} is not a whole checkpoint ({fault}): pass another, or leave it out to "
            "resume from the newest."
        )
    assert not isinstance(content, str)
    return Checkpoint(folder, content.step if content else 0, content)


def check_identity(start: Start, identity: Mapping[str, str]) -> None:
    """Raises JobError if the chosen checkpoint is from another training.

    Trainer's checkpoints don't record this; one is refused only if its state can't be loaded (`mismatch_error`).
    """
    checkpoint = start.chosen
    if checkpoint is None or checkpoint.manifest is None:
        return
    if name := difference(checkpoint.manifest.identity, identity):
        differs, advice = DIFFERENCES[name]
        raise JobError(
            f"The checkpoint {checkpoint.path} was written with {differs} than this job's: {advice}, give the job "
            f"another checkpoint folder, or {BEGIN_AGAIN}."
        )


def mismatch_error(checkpoint: str) -> JobError:
    """The error for a checkpoint whose state does not fit this job's model or optimizer."""
    return JobError(
        f"The checkpoint {checkpoint} is from another model or optimizer: {BEGIN_AGAIN}, or pass the model that it was "
        "written with."
    )


@contextmanager
def reading_with_old_torch(checkpoint: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Lets Trainer load the optimizer and scheduler of a checkpoint with a torch older than 2.6 (profile cu124).

    transformers refuses this: with such a torch a crafted file can make torch.load run code in spite of `weights_only`
    (CVE-2025-32434). But without the two a stopped job would begin again. So we refuse the file formats that allow the
    attack (`check_state`), and the log names the remaining risk: before torch 2.10 a crafted file can also corrupt
    memory (CVE-2026-24747), so the checkpoint's writers must be trusted. A signature next to the checkpoint would not
    help, because whoever can change a checkpoint can change it, too. If the weights are not safetensors (ours always
    are), transformers' refusal applies. Remove this together with torch 2.5.
    """
    old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6)
    if not old or checkpoint is None or not (Path(checkpoint) / "model.safetensors").is_file():
        yield
        return
    check_state(Path(checkpoint))
    say(
        f"torch {torch.__version__} reads the optimizer of {checkpoint}: whoever can write there can run code in this "
        "job (CVE-2025-32434, CVE-2026-24747); resume only from checkpoints whose writers you trust"
    )
    module: Any = transformers.trainer
    check = module.check_torch_load_is_safe
    module.check_torch_load_is_safe = lambda: None
    # Types in the state of NumPy's generator; with a newer torch transformers allows them itself.
    reconstruct = numpy.zeros(0).__reduce__()[0]
    numbers: list[Any] = [reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32))]
    try:
        with torch.serialization.safe_globals(numbers):
            yield
    finally:
        module.check_torch_load_is_safe = check


def check_state(checkpoint: Path) -> None:
    """Raises JobError unless every file that Trainer passes to torch.load is a zip archive of tensors.

    torch 2.5 reads those only with the restricted unpickler. Other formats reach code that 2.6 refuses to run:
    torch.jit.load for TorchScript archives, and the old readers for files that are not zip archives
    (pytorch/pytorch#145020). Use torch's zip reader: Python's may parse a crafted archive differently.
    """
    for path in sorted([*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]):
        with path.open("rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
        try:
            plain = zipped and "constants.pkl" not in torch._C.PyTorchFileReader(str(path)).get_all_records()
        except RuntimeError:
            plain = False
        if not plain:
            raise JobError(
                f"{path} is not a zip archive of tensors, as Trainer writes it (TorchScript and older formats can run "
                "code): pass another checkpoint, or leave resume_from_checkpoint out and set overwrite_output_dir to "
                "true to start from the beginning."
            )
