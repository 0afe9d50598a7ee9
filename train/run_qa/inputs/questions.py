"""Reads the questions of each split one after another, from files or the hub; counts and checks them.

The questions to train on are passed on one by one, never kept here: they may be more than fit into memory.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from berth.contract.splits import SPLITS
from berth.contract.words import counted
from berth.qa.faults import SHOWN
from berth.qa.files import find
from berth.qa.squad import AnswerCheck, DataError, Example, QuestionReader
from berth.runtime.engines.model_check import reason_of
from berth.train.run_qa.inputs.data import DataSource
from berth.train.run_qa.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a split: their `count`, a `digest` that depends on their order, and the `examples` (empty if
    they were passed to a `Take`). `notes`: lines for the end of the log, such as skipped questions. `scored`: whether
    the data has answers to compare with.
    """

    count: int
    digest: str
    examples: list[Example]
    notes: tuple[str, ...] = ()
    scored: bool = True


Take = Callable[[Iterable[Example]], None]
"""Consumes all questions, one after another."""


def load(
    source: DataSource, recipe: Recipe, limit: int | None, say: Callable[[str], None], take: Take | None = None
) -> Questions:
    """Read the first `limit` questions of a split (None: all). For training, questions whose answer is not at its
    offset are skipped. If there is a `take`, it gets the questions, and the result has no examples.
    """
    say(source.note)
    passed = Passed()
    examples: list[Example] = []
    train = source.split == "train"
    reader = _reader(source, recipe)
    answers = AnswerCheck(source.note.partition(": ")[2])
    (take or examples.extend)(passed.through(islice(answers.kept(reader) if train else reader, limit)))
    all_read = passed.count != limit
    reader.check()
    answers.check(all_read=all_read)
    for line in _read_lines(source, reader):
        say(f"{source.split} data: {line}")
    notes = [f"warning: {source.warning}"] if source.warning else []
    notes += [f"train data: {answers.note()}"] if answers.skipped else []
    for line in notes:
        say(line)
    total = counted(passed.count + answers.skipped, "question")
    say(
        f"{source.split} data: "
        + (f"{passed.count} of {total}" if all_read else f"the first {counted(limit or 0, 'question')}")
    )
    return Questions(passed.count, passed.digest, examples, tuple(notes), reader.scored)


class Passed:
    """Counts and digests the questions that pass `through` it."""

    def __init__(self) -> None:
        self.count = 0
        self._sha256 = hashlib.sha256()

    def through(self, examples: Iterable[Example]) -> Iterator[Example]:
        """Yield `examples` unchanged."""
        for example in examples:
            self.count += 1
            fields = (example.id, example.question, example.context, example.answers)
            self._sha256.update(repr(fields).encode("utf-8", "replace"))
            yield example

    @property
    def digest(self) -> str:
        """The SHA-256 of ids, texts and answers, in order."""
        return self._sha256.hexdigest()


def load_all(
    sources: Mapping[str, DataSource],
    recipe: Recipe,
    limits: Mapping[str, int | None],
    say: Callable[[str], None],
    takes: Mapping[str, Take] | None = None,
) -> dict[str, Questions]:
    """Read the questions of every split. Raises DataError with the faults of all splits."""
    loaded: dict[str, Questions] = {}
    problems: list[str] = []
    for split, source in sources.items():
        try:
            loaded[split] = load(source, recipe, limits[split], say, (takes or {}).get(split))
        except DataError as reason:
            problems.append(str(reason))
    if problems:
        raise DataError(" ".join(problems))
    return loaded


def _reader(source: DataSource, recipe: Recipe) -> QuestionReader:
    settings: dict[str, Any] = {
        "version_2_with_negative": recipe.version_2_with_negative,
        "offsets": source.split == "train",
        "answers": source.split != "test",
    }
    if source.path is None:
        return QuestionReader(Path(str(source.dataset)), _from_hub(source, recipe), **settings)
    return QuestionReader(source.path, **settings)


def _read_lines(source: DataSource, reader: QuestionReader) -> list[str]:
    """Log lines: the files that were read, with their counts; those that were not; and changes to questions."""
    lines = reader.notes()
    if source.path is not None and source.path.is_dir():
        folder = source.path
        read = [f"{file.relative_to(folder)} ({counted(count, 'question')})" for file, count in reader.counts.items()]
        lines.insert(0, f"read {_some(read)}")
        if others := [str(file.relative_to(folder)) for file in find(folder).others]:
            lines.insert(1, f"not read (not named like data files): {_some(others)}")
    return lines


def _some(names: Sequence[str]) -> str:
    """The first names, and the number of the rest."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _from_hub(source: DataSource, recipe: Recipe) -> Iterable[Mapping[str, Any]]:
    import datasets  # imported here because it takes seconds, and a job with channels does not need it

    try:
        loaded = datasets.load_dataset(
            source.dataset, recipe.dataset_config_name, cache_dir=recipe.cache_dir, token=recipe.token
        )
    except Exception as reason:  # the hub's client raises a dozen types without a common base
        raise DataError(
            f"dataset_name {source.dataset} can't be loaded ({reason_of(reason)}): check the "
            "name, and if the job can't reach the hub, pass the data as channels train and validation."
        ) from reason
    split = next((name for name in SPLITS[source.split].channels if name in loaded), None)
    if split is None:
        raise DataError(
            f"dataset_name {source.dataset} has no {source.split} split, only {', '.join(sorted(loaded))}: pass the "
            "data as a channel."
        )
    rows: Iterable[Mapping[str, Any]] = loaded[split]
    return rows
