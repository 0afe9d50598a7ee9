"""Where a job's questions come from: a file, a channel, or a data set of the hub, in this order.

SageMaker puts each channel into a folder of its own. `find` decides, per split, what to read; questions.py reads it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from berth.contract.splits import SPLITS, check_names
from berth.qa import files
from berth.qa.faults import DataError
from berth.train.config_files import read_object
from berth.train.finetune.recipe import Paths, Recipe


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where one split comes from: `path` of a file or folder, or `dataset` of the hub. `divided`: this host has some of
    its files. `warning`: what the names of its files say against it.
    """

    split: str
    note: str
    path: Path | None = None
    dataset: str | None = None
    divided: bool = False
    warning: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no file at all came to its path, as to a host that got none of a channel's."""
        return self.path is not None and not any(entry.is_file() for entry in (self.path, *self.path.rglob("*")))


def divided_channels(paths: Paths, hosts: int) -> frozenset[str]:
    """The channels of which each host has some of the files. Raises DataError for one that each must have whole."""
    if hosts == 1:
        return frozenset()
    found = frozenset(
        name
        for name, settings in read_object(paths.input_data_config).items()
        if isinstance(settings, dict) and settings.get("S3DistributionType") == "ShardedByS3Key"
    )
    if "model" in found:
        raise DataError(
            "Channel model is ShardedByS3Key, so that no host has the whole model: make it FullyReplicated."
        )
    return found


def channels(paths: Paths, parts: Collection[str] = ()) -> frozenset[str]:
    """The channels of this job; `parts` are those that are divided, of which a host may have no file. Raises DataError
    for one that is declared and not there, or that is a pipe.
    """
    declared = read_object(paths.input_data_config)
    for name, settings in declared.items():
        if isinstance(settings, dict) and settings.get("TrainingInputMode") == "Pipe":
            raise DataError(f"Channel {name} is in Pipe mode, which run_qa can't read: use File or FastFile mode.")
        if name not in parts and not (paths.channels / name).exists():
            raise DataError(
                f"Channel {name} is declared but {paths.channels / name} is not there: check the address that was "
                "given to fit for it."
            )
    if not paths.channels.is_dir():
        return frozenset(declared)
    return frozenset(declared) | {entry.name for entry in paths.channels.iterdir() if entry.is_dir()}


def find(split: str, recipe: Recipe, paths: Paths, there: frozenset[str], parts: Collection[str] = ()) -> DataSource:
    """Decide where a split comes from: of the channels `there`, the host has `parts` in part. Raises DataError with
    what to pass when there is nothing.
    """
    file = getattr(recipe, f"{split}_file")
    channel = next((name for name in SPLITS[split].channels if name in there), None)
    if file:
        path = _file(file, channel, paths)
        of_part = channel in parts and path.is_relative_to(paths.channels / str(channel))
        return _in_files(DataSource(split, f"{split} data: file {file}", path=path, divided=of_part))
    if channel:
        instead = f" (not dataset_name {recipe.dataset_name})" if recipe.dataset_name else ""
        note = f"{split} data: channel {channel}{instead}"
        return _in_files(DataSource(split, note, path=paths.channels / channel, divided=channel in parts))
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
    if warning and source.divided:  # other hosts may have files of the split itself
        refusal = f"{warning[0].upper()}{warning[1:]}: take such files out of a channel that is divided among hosts."
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
