"""The files that SageMaker writes to /opt/ml/input/config, and who reads them.

hyperparameters, resourceconfig, inputdataconfig   train/planning/job.py
checkpointconfig                                   this module
tensorboardoutputconfig                            train/run_qa/reporting/records.py
debughookconfig, profilerconfig                    SageMaker Debugger, which the image does not have: see `notes`
_PLATFORM_FILES                                    SageMaker's own agents, not the job
"""

import json
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError

FOLDER = "input/config"
_CHECKPOINTS = "checkpointconfig.json"
_HOOK = "debughookconfig.json"
_PROFILER = "profilerconfig.json"
_READ = {"hyperparameters.json", "resourceconfig.json", "inputdataconfig.json", "tensorboardoutputconfig.json"}
_PLATFORM_FILES = {
    "init-config.json",
    "metric-definition-regex.json",
    "trainingjobconfig.json",
    "upstreamoutputdataconfig.json",
}
_FRAMEWORK_PROFILING = "ProfilingConfig"
"""Suffix of parameters for framework profiling, such as DataloaderProfilingConfig; a library in the image reads them.
"""


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
    named = read_object(root / FOLDER / _CHECKPOINTS).get("LocalPath") or root / "checkpoints"
    if not isinstance(named, str | Path) or not Path(named).is_absolute():
        raise JobError(
            f"{root / FOLDER / _CHECKPOINTS} has the LocalPath {named!r}, which is not an absolute path; correct the "
            "estimator's checkpoint_local_path."
        )
    return Path(named)


def wants_checkpoints(root: Path) -> bool:
    """Whether checkpoints of the job are kept: the job configures them, or the folder exists."""
    return bool(read_object(root / FOLDER / _CHECKPOINTS)) or checkpoint_folder(root).is_dir()


def notes(root: Path) -> list[str]:
    """Lines for the log: the job's checkpoint folder, and config files that have no effect in this image.

    Raises JobError for a file that can't be read.
    """
    folder = root / FOLDER
    lines = []
    if checkpoints := read_object(folder / _CHECKPOINTS):
        copied = f", copied to {uri}" if (uri := checkpoints.get("S3Uri")) else ""
        lines.append(f"checkpoints: {checkpoint_folder(root)}{copied} ({_CHECKPOINTS})")
    ignored = []
    if read_object(folder / _HOOK):
        ignored.append(f"{_HOOK} (SageMaker Debugger's hook is not in this image: no tensors are saved)")
    parameters = read_object(folder / _PROFILER).get("ProfilingParameters")
    if isinstance(parameters, dict) and any(name.endswith(_FRAMEWORK_PROFILING) for name in parameters):
        ignored.append(
            f"{_PROFILER} (framework profiling is not in this image; SageMaker's system metrics do not need it)"
        )
    known = {*_READ, *_PLATFORM_FILES, _CHECKPOINTS, _HOOK, _PROFILER}
    present = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    ignored += [f"{name} (unknown)" for name in present if name not in known]
    if ignored:
        lines.append(f"ignored in {folder}: {', '.join(ignored)}")
    return lines
