"""Writes the model to /opt/ml/model, so that a kill leaves an earlier model, no model, or this one, never a mixture.

SageMaker also uploads the folder if the job was stopped or killed. The folder is a mount point and can't be renamed. So
the files are written into a hidden folder in it and then moved one by one. A model can't be loaded without config.json,
so this file is removed first and moved last: a kill in these few milliseconds leaves no model.
"""

from collections.abc import Callable
from pathlib import Path

from berth.contract.errors import JobError
from berth.contract.model_files import CONFIG
from berth.runtime import whole_files
from berth.train.run_qa.checkpoints.saving import is_write_error, write_error_text

_WEIGHTS = ("model*.safetensors*", "pytorch_model*.bin*")


def write(folder: Path, save: Callable[[Path], None]) -> None:
    """Call `save` with a temporary folder, and move the model that it writes there into `folder`.

    Other files in `folder` stay, except for an earlier model's weights. Raises JobError if the disk is full or can't be
    written to; an earlier model is then kept.
    """
    try:
        with whole_files.scratch(folder / "model") as written:
            save(written)
            _move(written, folder)
    except Exception as error:
        if not is_write_error(error):
            raise
        raise JobError(
            f"The model can't be written to {folder} ({write_error_text(error)}): give the job a larger disk "
            "(volume_size); if it has checkpoints and is started again, it resumes from the last one."
        ) from error


def _move(written: Path, folder: Path) -> None:
    names = sorted(path.relative_to(written) for path in written.rglob("*") if path.is_file())
    if not names:  # this rank has no part of a sharded model to write
        return
    (folder / CONFIG).unlink(missing_ok=True)
    for stale in [path for pattern in _WEIGHTS for path in folder.glob(pattern)]:
        stale.unlink()
    for name in sorted(names, key=lambda name: name == Path(CONFIG)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (written / name).replace(folder / name)
