"""Where a job's questions come from: a file, a channel, or a data set of the hub, in this order.

SageMaker puts each channel into a folder of its own. `find` decides, per split, what to read; `load` reads it into
examples and says in the log what was taken.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.splits import SPLITS
from berth.qa.faults import counted
from berth.qa.squad import Answer, DataError, Example, check_answers, read, skipped_note
from berth.train.finetune.recipe import Paths, Recipe

HUB_SPLITS = {"train": ("train",), "validation": ("validation", "test"), "test": ("test",)}


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where one split comes from: `path` of a file or folder, or `dataset` of the hub. `divided`: this host has some of
    its files.
    """

    split: str
    note: str
    path: Path | None = None
    dataset: str | None = None
    divided: bool = False

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
        for name, settings in _declared(paths).items()
        if isinstance(settings, dict) and settings.get("S3DistributionType") == "ShardedByS3Key"
    )
    if "model" in found:
        raise DataError(
            "Channel model is ShardedByS3Key, so that no host has the whole model: make it FullyReplicated."
        )
    return found


def _declared(paths: Paths) -> Mapping[str, Any]:
    if not paths.input_data_config.is_file():
        return {}
    found: Mapping[str, Any] = json.loads(paths.input_data_config.read_text(encoding="utf-8") or "{}") or {}
    return found


def channels(paths: Paths, parts: Collection[str] = ()) -> frozenset[str]:
    """The channels of this job; `parts` are those that are divided, of which a host may have no file. Raises DataError
    for one that is declared and not there, or that is a pipe.
    """
    declared = _declared(paths)
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
        return DataSource(split, f"{split} data: file {file}", path=path, divided=of_part)
    if channel:
        instead = f" (not dataset_name {recipe.dataset_name})" if recipe.dataset_name else ""
        note = f"{split} data: channel {channel}{instead}"
        return DataSource(split, note, path=paths.channels / channel, divided=channel in parts)
    if recipe.dataset_name:
        return DataSource(split, f"{split} data: {recipe.dataset_name} of the hub", dataset=recipe.dataset_name)
    raise DataError(
        f"There is no {split} data: pass a folder with SQuAD files as channel {' or '.join(SPLITS[split].channels)}, "
        f"or {split}_file, or dataset_name, or set {SPLITS[split].task} to false."
    )


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a split that are used, and in words which were left out (empty where none was). `divided`: other
    hosts have others.
    """

    examples: list[Example]
    skipped: str = ""
    divided: bool = False


def load(source: DataSource, recipe: Recipe, limit: int | None, say: Callable[[str], None]) -> Questions:
    """The questions of a split, at most `limit`; for training without those whose answer is not at its offset. No
    question where this host has no file of a divided channel.
    """
    say(source.note)
    train = source.split == "train"
    if source.divided and source.is_empty:
        return Questions([], divided=True)
    if source.path is not None:
        examples = read(source.path, version_2_with_negative=recipe.version_2_with_negative, offsets=train)
    else:
        examples = _from_hub(source, recipe)
    there = len(examples)
    note = ""
    if train:
        examples, skipped = check_answers(examples, source.note.partition(": ")[2])
        if skipped:
            note = f"train data: {skipped_note(skipped)}"
            say(note)
    say(f"{source.split} data: {min(len(examples), limit or len(examples))} of {counted(there, 'question')}")
    return Questions(examples[:limit], note, source.divided)


def load_all(
    sources: Mapping[str, DataSource], recipe: Recipe, limits: Mapping[str, int | None], say: Callable[[str], None]
) -> dict[str, Questions]:
    """The questions of every split. Raises DataError with the faults of all of them."""
    loaded: dict[str, Questions] = {}
    problems: list[str] = []
    for split, source in sources.items():
        try:
            loaded[split] = load(source, recipe, limits[split], say)
        except DataError as reason:
            problems.append(str(reason))
    if problems:
        raise DataError(" ".join(problems))
    return loaded


def _file(given: str, channel: str | None, paths: Paths) -> Path:
    """A file as it was given, or of that name in the split's channel."""
    places = [Path(given), *([paths.channels / channel / given] if channel else [])]
    for place in places:
        if place.exists():
            return place
    raise DataError(f"File {given} is not there: looked at {' and '.join(str(place) for place in places)}.")


def _from_hub(source: DataSource, recipe: Recipe) -> list[Example]:
    import datasets  # imported here: it takes seconds, and a job with channels does without

    try:
        loaded = datasets.load_dataset(
            source.dataset, recipe.dataset_config_name, cache_dir=recipe.cache_dir, token=recipe.token
        )
    except Exception as reason:  # the hub's client has a dozen kinds of errors without a common parent
        raise DataError(
            f"dataset_name {source.dataset} can't be loaded ({type(reason).__name__}: {first_line(reason)}): check the "
            "name, and in a job without a way to the hub pass the data as channels train and validation."
        ) from reason
    split = next((name for name in HUB_SPLITS[source.split] if name in loaded), None)
    if split is None:
        raise DataError(
            f"dataset_name {source.dataset} has no {source.split} split, only {', '.join(sorted(loaded))}: pass the "
            "data as a channel."
        )
    return examples_of(loaded[split], str(source.dataset), version_2_with_negative=recipe.version_2_with_negative)


def examples_of(rows: Iterable[Mapping[str, Any]], name: str, *, version_2_with_negative: bool) -> list[Example]:
    """Rows of a hub data set in SQuAD's columns as examples. Raises DataError where the columns are others."""
    examples = []
    for row in rows:
        try:
            texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
            answers = tuple(Answer(str(text), int(start)) for text, start in zip(texts, starts, strict=True))
            examples.append(Example(str(row["id"]), row["question"], row["context"], answers))
        except (KeyError, TypeError, ValueError) as reason:
            raise DataError(
                f"dataset_name {name} is not laid out like SQuAD (id, question, context, answers with text and "
                "answer_start): convert it, or name another."
            ) from reason
    empty = sum(not example.answers for example in examples)
    if empty and not version_2_with_negative:
        raise DataError(
            f"{counted(empty, 'question')} of {name} without an answer: set version_2_with_negative to true."
        )
    if not examples:
        raise DataError(f"dataset_name {name} has no questions: name another.")
    return examples


def first_line(reason: BaseException) -> str:
    """The first line of an exception's text without closing stops, its type where it says nothing."""
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0].rstrip(".:")
