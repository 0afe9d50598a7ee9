"""The model in /opt/ml/model: an earlier one, none, or all of this job's, whatever ends the job meanwhile.

SageMaker uploads the folder of a job that was stopped or killed as well. It is a mount point and can't be renamed. So
the files are written into a hidden folder in it and then moved, one by one. config.json, without which nothing loads a
model, is removed first and moved last: a kill between the two, in some milliseconds, leaves no model but no mixture.
"""

from collections.abc import Callable
from pathlib import Path

from berth.contract.errors import JobError
from berth.contract.model_files import CONFIG
from berth.runtime import whole_files
from berth.train.run_qa.checkpoints.saving import cause, is_write_error

_WEIGHTS = ("model*.safetensors*", "pytorch_model*.bin*")


def write(folder: Path, save: Callable[[Path], None]) -> None:
    """Have `save` write a model into a folder that is given to it, and move that model into `folder`.

    Files of other names stay in `folder`, but for an earlier model's weights. Raises JobError if the disk is full or
    can't be written to; an earlier model is then still there.
    """
    try:
        with whole_files.scratch(folder / "model") as written:
            save(written)
            _move(written, folder)
    except Exception as error:
        if not is_write_error(error):
            raise
        raise JobError(
            f"The model can't be written to {folder} ({cause(error)}): give the job a larger disk (volume_size); "
            "with checkpoints, started again, it goes on from the last of them."
        ) from error


def _move(written: Path, folder: Path) -> None:
    names = sorted(path.relative_to(written) for path in written.rglob("*") if path.is_file())
    if not names:  # of a model that is spread over ranks, by a rank that writes nothing
        return
    (folder / CONFIG).unlink(missing_ok=True)
    for stale in [path for pattern in _WEIGHTS for path in folder.glob(pattern)]:
        stale.unlink()
    for name in sorted(names, key=lambda name: name == Path(CONFIG)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (written / name).replace(folder / name)
