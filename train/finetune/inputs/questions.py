"""The questions of each split, read one after another from files or the hub: counted, checked, and kept or handed on.

Nothing here holds all of what is trained on, which may be more than fits into memory.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from berth.qa.faults import counted
from berth.qa.squad import Answer, AnswerCheck, DataError, Example, QuestionReader
from berth.train.finetune.inputs.data import DataSource, first_line
from berth.train.finetune.recipe import Recipe

HUB_SPLITS = {"train": ("train",), "validation": ("validation", "test"), "test": ("test",)}


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a split that are used: how many, a digest of them and of their order, the questions themselves
    unless they were taken, and in words which were left out (empty where none was). `divided`: other hosts have others.
    """

    count: int
    digest: str
    examples: list[Example]
    skipped: str = ""
    divided: bool = False


Take = Callable[[Iterable[Example]], None]
"""Goes through questions one after another, to the last."""


def load(
    source: DataSource, recipe: Recipe, limit: int | None, say: Callable[[str], None], take: Take | None = None
) -> Questions:
    """The questions of a split, at most `limit`, behind which nothing is read; for training without those whose answer
    is not at its offset. `take` gets them in place of the answer. No question where this host has no file of a divided
    channel.
    """
    say(source.note)
    passed = Passed()
    examples: list[Example] = []
    if source.divided and source.is_empty:
        return Questions(0, passed.digest, examples, divided=True)
    train = source.split == "train"
    reader = _reader(source, recipe)
    answers = AnswerCheck(source.note.partition(": ")[2])
    (take or examples.extend)(passed.through(islice(answers.kept(reader) if train else reader, limit)))
    all_read = passed.count != limit
    reader.check()
    answers.check(all_read=all_read)
    note = f"train data: {answers.note()}" if answers.skipped else ""
    if note:
        say(note)
    there = counted(passed.count + answers.skipped, "question")
    say(
        f"{source.split} data: "
        + (f"{passed.count} of {there}" if all_read else f"the first {counted(limit or 0, 'question')}")
    )
    return Questions(passed.count, passed.digest, examples, note, source.divided)


class Passed:
    """How many questions have passed, and their digest."""

    def __init__(self) -> None:
        self.count = 0
        self._sha256 = hashlib.sha256()

    def through(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The same questions."""
        for example in examples:
            self.count += 1
            fields = (example.id, example.question, example.context, example.answers)
            self._sha256.update(repr(fields).encode("utf-8", "replace"))
            yield example

    @property
    def digest(self) -> str:
        """The SHA-256 of ids, texts and answers, in their order."""
        return self._sha256.hexdigest()


def load_all(
    sources: Mapping[str, DataSource],
    recipe: Recipe,
    limits: Mapping[str, int | None],
    say: Callable[[str], None],
    takes: Mapping[str, Take] | None = None,
) -> dict[str, Questions]:
    """The questions of every split. Raises DataError with the faults of all of them."""
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


def _reader(source: DataSource, recipe: Recipe) -> "QuestionReader | HubReader":
    negative = recipe.version_2_with_negative
    if source.path is None:
        return HubReader(_from_hub(source, recipe), str(source.dataset), version_2_with_negative=negative)
    return QuestionReader(source.path, version_2_with_negative=negative, offsets=source.split == "train")


def _from_hub(source: DataSource, recipe: Recipe) -> Iterable[Mapping[str, Any]]:
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
    rows: Iterable[Mapping[str, Any]] = loaded[split]
    return rows


class HubReader:
    """Rows of a hub data set in SQuAD's columns as examples, to be gone through and checked as QuestionReader is."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], name: str, *, version_2_with_negative: bool) -> None:
        self.rows = rows
        self.name = name
        self.version_2_with_negative = version_2_with_negative
        self._count = 0
        self._unanswered = 0

    def __iter__(self) -> Iterator[Example]:
        """Up to the first without an answer where each needs one. Raises DataError where the columns are others."""
        for row in self.rows:
            self._count += 1
            example = self._example(row)
            if not example.answers and not self.version_2_with_negative:
                self._unanswered += 1
            if not self._unanswered:
                yield example

    def check(self) -> None:
        """Raises DataError where questions lack an answer, or there is none."""
        if self._unanswered:
            raise DataError(
                f"{counted(self._unanswered, 'question')} of {self.name} without an answer: set "
                "version_2_with_negative to true."
            )
        if not self._count:
            raise DataError(f"dataset_name {self.name} has no questions: name another.")

    def _example(self, row: Mapping[str, Any]) -> Example:
        try:
            texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
            answers = tuple(Answer(str(text), int(start)) for text, start in zip(texts, starts, strict=True))
            return Example(str(row["id"]), row["question"], row["context"], answers)
        except (KeyError, TypeError, ValueError) as reason:
            raise DataError(
                f"dataset_name {self.name} is not laid out like SQuAD (id, question, context, answers with text and "
                "answer_start): convert it, or name another."
            ) from reason
