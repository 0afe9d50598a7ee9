"""Which checkpoint a job goes on from.

A job that was stopped (spot capacity, a time limit) finds its checkpoints back in the checkpoint folder and goes on
from the newest that every rank has. Writing them is Trainer's work.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers

from berth.contract.errors import JobError
from berth.contract.model_files import WEIGHTS

# Trainer writes this file last: a checkpoint without it was cut off.
LAST_FILE = "trainer_state.json"


class CheckpointError(JobError):
    """The checkpoint asked for can't be used; the message is one sentence."""


def complete(folder: Path) -> list[int]:
    """Steps of the whole checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    steps = []
    for entry in folder.iterdir():
        match = re.fullmatch(r"checkpoint-(\d+)", entry.name)
        if match and _is_whole(entry):
            steps.append(int(match[1]))
    return sorted(steps)


def newest_of_all(everyone: Sequence[Sequence[int]]) -> int | None:
    """The newest step that every rank has a checkpoint of. None: there is none, training starts from the beginning."""
    shared = set(everyone[0]).intersection(*everyone[1:]) if everyone else set()
    return max(shared, default=None)


def given(path: str) -> Path:
    """A checkpoint that the user named. Raises CheckpointError if it is not one."""
    folder = Path(path)
    if not _is_whole(folder):
        raise CheckpointError(
            f"resume_from_checkpoint {path} is not a whole checkpoint (it needs the weights and {LAST_FILE}): "
            "name another, or leave it out to go on from the newest."
        )
    return folder


def of_another(checkpoint: str) -> CheckpointError:
    """The sentence for a checkpoint that does not go into this job's model."""
    return CheckpointError(
        f"The checkpoint {checkpoint} is of another model or optimizer than this job's: set overwrite_output_dir to "
        "true and leave resume_from_checkpoint out to start from the beginning, or pass the model that it was written "
        "with."
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


def _is_whole(folder: Path) -> bool:
    return (folder / LAST_FILE).is_file() and any((folder / name).is_file() for name in WEIGHTS)
