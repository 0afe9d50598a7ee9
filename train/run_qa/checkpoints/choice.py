"""Which checkpoint a job goes on from.

A job that was stopped (spot capacity, a time limit) finds its checkpoints back in the checkpoint folder and goes on
from the newest that every rank has whole. What a checkpoint is stands in checkpoint_folder.py; saving.py writes them.
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
from berth.train.run_qa.checkpoints.identity import WORDS, difference
from berth.train.run_qa.checkpoints.manifest import MANIFEST
from berth.train.run_qa.recipe import TrainingSettings

_WEIGHTS_ALONE = "it has weights alone (save_only_model)"
BEGIN_AGAIN = "set overwrite_output_dir to true (and leave resume_from_checkpoint out) to start from the beginning"


class CheckpointError(JobError):
    """The checkpoint asked for can't be used; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a training begins: what this host's checkpoint folder held, the checkpoint to go on from, and SageMaker's
    name of the `job`.
    """

    listing: Listing = field(default_factory=Listing)
    chosen: Checkpoint | None = None
    job: str = ""


def choose(settings: TrainingSettings, job: str, rank: Rank, say: Callable[[str], None]) -> Start:
    """Where to go on, the same for all ranks, which must all call it; nothing is deleted yet.

    That is at the path that the user named, or at the newest that every rank has whole. A job that is to start from the
    beginning does so once: after a spot interruption SageMaker starts it again by the same name.
    """
    folder, resume = settings.checkpoints, settings.resume
    listing = checkpoint_folder.look(folder)
    weights_alone = {each.path: _WEIGHTS_ALONE for each in listing.whole if not each.resumable}
    for path, reason in {**listing.torn, **listing.passed_over, **weights_alone}.items():
        say(f"{path} is passed over: {reason}")
    if isinstance(resume, str):
        chosen: Checkpoint | None = given(resume)
    else:
        usable = [each for each in listing.whole if each.resumable and (resume or each.is_of(job))]
        chosen = _newest_of_all(usable, listing, rank, say)
        if not chosen and any(ranks.gather(bool(usable), rank)):
            say(f"warning: no checkpoint in {folder} is whole on every host: training starts from the beginning")
    if chosen:
        why = "overwrite_output_dir true would start from the beginning" if resume else "this job wrote it"
        say(f"going on from {chosen.path} ({why})")
        if chosen.manifest is None and not checkpoint_folder.has_optimizer(chosen.path):
            say(f"warning: {chosen.path} has no optimizer and scheduler, which begin anew")
    return Start(listing, chosen, job)


def _newest_of_all(
    usable: list[Checkpoint], listing: Listing, rank: Rank, say: Callable[[str], None]
) -> Checkpoint | None:
    """Found by what each rank's folder lists; only the one to be taken is read, by each rank."""
    while True:
        everyone = ranks.gather({each.path.name: list(each.age) for each in usable}, rank)
        shared = set(everyone[0]).intersection(*everyone[1:])
        newest = max(shared, key=lambda name: everyone[0][name], default=None)
        if newest is None:
            return None
        mine = next(each for each in usable if each.path.name == newest)
        faults = ranks.gather(manifest.altered(mine.path, mine.manifest) if mine.manifest else "", rank)
        if not any(faults):
            return mine
        say(f"{mine.path} is passed over: {next(filter(None, faults))}")
        usable.remove(mine)
        listing.whole.remove(mine)
        if faults[rank.rank]:
            listing.torn[mine.path] = faults[rank.rank]


def given(path: str) -> Checkpoint:
    """A checkpoint that the user named. Raises CheckpointError if it is not one."""
    folder = Path(path)
    content = manifest.read(folder)
    if content:
        fault = manifest.altered(folder, content) or ("" if content.resumable else _WEIGHTS_ALONE)
    elif (folder / MANIFEST).is_file():
        fault = f"{MANIFEST} is cut off" if manifest.is_cut_off(folder) else checkpoint_folder.OF_ANOTHER_VERSION
    else:
        fault = checkpoint_folder.fault_of_trainers(folder)
    if fault:
        raise CheckpointError(
            f"resume_from_checkpoint {path} is not a whole checkpoint ({fault}): name another, or leave it out to go "
            "on from the newest."
        )
    return Checkpoint(folder, content.step if content else 0, content)


def check_identity(start: Start, identity: Mapping[str, str]) -> None:
    """Raises CheckpointError if the chosen checkpoint is of another training than this one.

    Trainer's own say nothing of it: of them only those are refused that don't fit (`of_another`).
    """
    checkpoint = start.chosen
    if checkpoint is None or checkpoint.manifest is None:
        return
    if name := difference(checkpoint.manifest.identity, identity):
        differs, advice = WORDS[name]
        raise CheckpointError(
            f"The checkpoint {checkpoint.path} was written with {differs} than this job's: {advice}, give the job "
            f"another checkpoint folder, or {BEGIN_AGAIN}."
        )


def of_another(checkpoint: str) -> CheckpointError:
    """The sentence for one of Trainer's own that does not go into this job's model."""
    return CheckpointError(
        f"The checkpoint {checkpoint} is of another model or optimizer than this job's: {BEGIN_AGAIN}, or pass the "
        "model that it was written with."
    )


@contextmanager
def readable(checkpoint: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Lets Trainer read the optimizer and scheduler of a checkpoint with a torch older than 2.6, as profile cu124 has.

    transformers refuses to: there a crafted file can make torch.load run code in spite of `weights_only`
    (CVE-2025-32434). But without them a job that was stopped would begin again. So files of the kinds that open those
    ways are refused by us (`check_state`), and the log says what is left: who may write the checkpoint must be trusted,
    for torch before 2.10 a crafted file can corrupt memory as well (CVE-2026-24747). Nothing in the folder could prove
    who wrote it: whoever can change a checkpoint can change a mark next to it. A checkpoint whose weights are no
    safetensors, as none of ours is, keeps transformers' refusal. Can go with torch 2.5.
    """
    old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6)
    if not old or checkpoint is None or not (Path(checkpoint) / "model.safetensors").is_file():
        yield
        return
    check_state(Path(checkpoint))
    say(
        f"torch {torch.__version__} reads the optimizer of {checkpoint}: who can write there can run code in this job "
        "(CVE-2025-32434, CVE-2026-24747); go on only from checkpoints whose writers you trust"
    )
    module: Any = transformers.trainer
    check = module.check_torch_load_is_safe
    module.check_torch_load_is_safe = lambda: None
    # What the state of NumPy's generator is made of; for a newer torch transformers allows it itself.
    reconstruct = numpy.zeros(0).__reduce__()[0]
    numbers: list[Any] = [reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32))]
    try:
        with torch.serialization.safe_globals(numbers):
            yield
    finally:
        module.check_torch_load_is_safe = check


def check_state(checkpoint: Path) -> None:
    """Raises CheckpointError unless every file that Trainer gives to torch.load is a zip archive of tensors.

    Those are read by the restricted unpickler alone. From others torch 2.5 reaches code that 2.6 refuses to run:
    TorchScript archives go to torch.jit.load, files from before zip archives to the readers of those times
    (pytorch/pytorch#145020). Asked of torch's own reader, which might see another archive than Python's.
    """
    for path in sorted([*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]):
        with path.open("rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
        try:
            plain = zipped and "constants.pkl" not in torch._C.PyTorchFileReader(str(path)).get_all_records()
        except RuntimeError:
            plain = False
        if not plain:
            raise CheckpointError(
                f"{path} is not what Trainer writes (a zip archive of tensors; TorchScript and older formats can run "
                "code): name another checkpoint, or leave resume_from_checkpoint out and set overwrite_output_dir to "
                "true to start from the beginning."
            )
