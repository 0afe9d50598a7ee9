"""Where a job's questions come from: a file, a channel, or a data set of the hub, in this order.

SageMaker puts each channel into a folder of its own. `find` decides, per split, what to read; questions.py reads it.
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
    """Where one split comes from: `path` of a file or folder, or `dataset` of the hub. `warning`: what the names of its
    files say against it.
    """

    split: str
    note: str
    path: Path | None = None
    dataset: str | None = None
    warning: str = ""


def channels(paths: Paths, hosts: int = 1) -> frozenset[str]:
    """The channels of this job. Raises DataError for one that is declared and missing, that is a pipe, or that is
    divided among several hosts.
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
                f"Channel {name} is declared but {paths.channels / name} is not there: check the address that was "
                "given to fit for it."
            )
    if not paths.channels.is_dir():
        return frozenset(declared)
    return frozenset(declared) | {entry.name for entry in paths.channels.iterdir() if entry.is_dir()}


def find(split: str, recipe: Recipe, paths: Paths, there: frozenset[str]) -> DataSource:
    """Decide where a split comes from, given the channels `there`. Raises DataError with what to pass when there is
    nothing.
    """
    file = getattr(recipe, f"{split}_file")
    channel = next((name for name in SPLITS[split].channels if name in there), None)
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
    """The same, its file names checked: a file that was named is meant, whatever it is called."""
    path = source.path
    if path is None or not path.is_dir():
        return source
    try:
        found = files.find(path).data
    except DataError:  # told where it is read, with the faults of other splits
        return source
    refusal, warning = check_names(source.split, path, found)
    if refusal:
        raise DataError(refusal)
    return replace(source, warning=warning)


def _file(given: str, channel: str | None, paths: Paths) -> Path:
    """A file as it was given, or of that name in the split's channel."""
    places = [Path(given), *([paths.channels / channel / given] if channel else [])]
    for place in places:
        if place.exists():
            return place
    raise DataError(f"File {given} is not there: looked at {' and '.join(str(place) for place in places)}.")
