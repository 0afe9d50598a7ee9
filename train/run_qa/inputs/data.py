"""The source of a job's questions: a file, else a channel, else a data set of the hub.

SageMaker puts each channel into a separate folder. `find` decides per split what to read; questions.py reads it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from berth.contract.splits import SPLITS, check_names
from berth.qa import files
from berth.qa.faults import DataError
from berth.runtime.config_files import read_object
from berth.train.run_qa.recipe import Paths, Recipe


@dataclass(frozen=True, slots=True)
class DataSource:
    """The source of one split: the `path` of a file or folder, or a `dataset` of the hub. `note`: a line for the log.
    `warning`: set if the file names suggest another split.
    """

    split: str
    note: str
    path: Path | None = None
    dataset: str | None = None
    warning: str = ""


def channels(paths: Paths, hosts: int = 1) -> frozenset[str]:
    """The channels of this job. Raises DataError if a declared channel is missing, is in Pipe mode, or is divided among
    several hosts.
    """
    declared = read_object(paths.input_data_config)
    for name, settings in declared.items():
        if isinstance(settings, dict) and settings.get("TrainingInputMode") == "Pipe":
            raise DataError(f"Channel {name} is in Pipe mode, which run_qa can't read: use File or FastFile mode.")
        if hosts > 1 and isinstance(settings, dict) and settings.get("S3DistributionType") == "ShardedByS3Key":
            raise DataError(
                f"Channel {name} is ShardedByS3Key, so each host has only some of its files, and run_qa needs all of "
                "them on every host: make the channel FullyReplicated."
            )
        if not (paths.channels / name).exists():
            raise DataError(
                f"Channel {name} is declared but {paths.channels / name} does not exist: check the S3 URI that was "
                "passed to fit for it."
            )
    if not paths.channels.is_dir():
        return frozenset(declared)
    return frozenset(declared) | {entry.name for entry in paths.channels.iterdir() if entry.is_dir()}


def find(split: str, recipe: Recipe, paths: Paths, available: frozenset[str]) -> DataSource:
    """Decide where a split comes from. `available`: the job's channels. Raises DataError if there is no source."""
    file = getattr(recipe, f"{split}_file")
    channel = next((name for name in SPLITS[split].channels if name in available), None)
    if file:
        return _in_files(DataSource(split, f"{split} data: file {file}", path=_file(file, channel, paths)))
    if channel:
        instead = f" (not dataset_name {recipe.dataset_name})" if recipe.dataset_name else ""
        note = f"{split} data: channel {channel}{instead}"
        return _in_files(DataSource(split, note, path=paths.channels / channel))
    if recipe.dataset_name:
        return DataSource(split, f"{split} data: {recipe.dataset_name} of the hub", dataset=recipe.dataset_name)
    raise DataError(
        f"There is no {split} data: pass a folder with SQuAD files as channel {' or '.join(SPLITS[split].channels)}, "
        f"or {split}_file, or dataset_name, or set {SPLITS[split].task} to false."
    )


def _in_files(source: DataSource) -> DataSource:
    """Check the file names of a folder. A single file is not checked: the user named it."""
    path = source.path
    if path is None or not path.is_dir():
        return source
    try:
        data_files = files.find(path).data
    except DataError:  # raised again when the split is read, together with the faults of other splits
        return source
    refusal, warning = check_names(source.split, path, data_files)
    if refusal:
        raise DataError(refusal)
    return replace(source, warning=warning)


def _file(name: str, channel: str | None, paths: Paths) -> Path:
    """The file at the path `name`, else the file of this name in the split's channel."""
    candidates = [Path(name), *([paths.channels / channel / name] if channel else [])]
    for path in candidates:
        if path.exists():
            return path
    raise DataError(f"File {name} does not exist: looked for {' and '.join(str(path) for path in candidates)}.")
