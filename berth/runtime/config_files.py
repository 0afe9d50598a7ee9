"""The files that SageMaker writes to /opt/ml/input/config, and who reads them.

hyperparameters, resourceconfig, inputdataconfig   train/planning/job.py
checkpointconfig                                   this module
tensorboardoutputconfig                            train/run_qa/reporting/records.py
all others                                         SageMaker's own agents, and Debugger, which the image does not have
"""

import json
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError

FOLDER = "input/config"
_CHECKPOINTS = "checkpointconfig.json"


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing, empty or `null`. Raises JobError for anything else."""
    try:
        value = json.loads(path.read_text("utf-8").strip() or "null")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise JobError(
            f"{path} can't be read as JSON ({error}); give the job a file as SageMaker writes it."
        ) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise JobError(
            f"{path} must hold a JSON object, not {type(value).__name__}; give the job a file as SageMaker writes it."
        )
    return value


def checkpoint_folder(root: Path) -> Path:
    """The folder that SageMaker copies to S3 and restores: the estimator's checkpoint_local_path, by default
    `root`/checkpoints (root: /opt/ml). Raises JobError if the path is invalid.
    """
    path = read_object(root / FOLDER / _CHECKPOINTS).get("LocalPath") or root / "checkpoints"
    if not isinstance(path, str | Path) or not Path(path).is_absolute():
        raise JobError(
            f"{root / FOLDER / _CHECKPOINTS} has the LocalPath {path!r}, which is not an absolute path; correct the "
            "estimator's checkpoint_local_path."
        )
    return Path(path)


def wants_checkpoints(root: Path) -> bool:
    """Whether checkpoints of the job are kept: the job configures them, or the folder exists."""
    return bool(read_object(root / FOLDER / _CHECKPOINTS)) or checkpoint_folder(root).is_dir()


def checkpoint_note(root: Path) -> str:
    """The job's checkpoint folder, for the log; empty if the job configures none. Raises JobError as above."""
    checkpoints = read_object(root / FOLDER / _CHECKPOINTS)
    copied = f", copied to {checkpoints['S3Uri']}" if checkpoints.get("S3Uri") else ""
    return f"checkpoints: {checkpoint_folder(root)}{copied} ({_CHECKPOINTS})" if checkpoints else ""
