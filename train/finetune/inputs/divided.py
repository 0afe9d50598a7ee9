"""Channels that SageMaker divides among the hosts (S3DistributionType ShardedByS3Key): each host has some of the files.

Hosts then hold different questions, and no order of all of them means anything. What is trained on stays with its host:
each takes windows of its own, the same number on all hosts, shared by the host's ranks (features.HostSampler). What is
only answered is put together on every rank before anything else, for a share of exact match or F1 would be no measure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import TrainingArguments

from berth.qa.faults import counted
from berth.qa.squad import Answer, DataError, Example
from berth.train.environment import Rank
from berth.train.finetune.inputs import questions
from berth.train.finetune.inputs.data import DataSource
from berth.train.finetune.inputs.questions import Passed, Questions, Take
from berth.train.finetune.ranks import gather
from berth.train.finetune.recipe import Recipe
from berth.train.host_names import listed


@dataclass(frozen=True, slots=True)
class HostWindows:
    """How many windows each host trains on, by its name and in the order of hosts, and of how many questions in all."""

    counts: Mapping[str, int]
    questions: int

    def batches(self, windows: int) -> int:
        """Of an epoch: how often each host takes that many `windows`, until the smallest has given all of its own."""
        return -(-min(self.counts.values()) // windows)

    def line(self, windows: int, accumulated: int) -> str:
        """What an epoch takes of whom, for the log; a step is `accumulated` times so many `windows` of each host."""
        fewest, most = (choose(self.counts, key=self.counts.__getitem__) for choose in (min, max))
        steps = -(-self.batches(windows) // accumulated)
        return (
            f"train data: divided among {len(self.counts)} hosts (ShardedByS3Key), {self.counts[fewest]} windows on "
            f"{fewest} at least and {self.counts[most]} on {most} at most: an epoch has {counted(steps, 'step')} of "
            f"{windows * accumulated} windows on each host, enough for the fewest"
        )


def load_all(
    sources: Mapping[str, DataSource],
    recipe: Recipe,
    limits: Mapping[str, int | None],
    rank: Rank,
    say: Callable[[str], None],
    takes: Mapping[str, Take],
) -> dict[str, Questions]:
    """The questions of every split, by all ranks together: of `train` this host's own where its channel is divided.

    `takes` has who gets the questions of a split as they are read. A limit counts the questions of all hosts. Raises
    DataError with all faults of this host's files, or with what does not fit between hosts.
    """
    train = sources.get("train")
    if train and train.divided:
        _check_files(train, rank)
    apart = {split for split, source in sources.items() if source.divided}
    of_host = dict(limits) | dict.fromkeys(apart, None)  # what is put together is cut afterwards
    if "train" in apart and (most := limits["train"]):
        of_host["train"] = -(-most // rank.hosts)
    loaded = questions.load_all(sources, recipe, of_host, say, takes)
    if rank.hosts > 1:
        _check_same({split: each for split, each in loaded.items() if split not in apart}, rank)
    for split in sorted(apart - {"train"}):
        examples: list[Example] = []
        passed = Passed()
        together = _put_together(split, loaded[split].examples, rank, say)
        examples.extend(passed.through(together[: limits[split]]))
        scored = all(_of_each_host(loaded[split].scored, rank).values())
        loaded[split] = Questions(passed.count, passed.digest, examples, loaded[split].notes, scored=scored)
    return loaded


def check_arguments(args: TrainingArguments) -> None:
    """For a divided channel train: refuse what hands one rank's data to all, or needs the lengths of all of it."""
    asked = [name for name in ("split_batches", "dispatch_batches") if getattr(args.accelerator_config, name)]
    if args.train_sampling_strategy == "batch_rebalance":
        asked.append("train_sampling_strategy batch_rebalance")
    if asked:
        raise DataError(
            f"{' and '.join(asked)} can't be had while channel train is divided among the hosts (ShardedByS3Key): "
            "leave it out, or make the channel FullyReplicated."
        )


def host_windows(asked: int, windows: int, rank: Rank) -> HostWindows:
    """What all hosts hold, by the questions `asked` on this one and its windows; every rank must call it."""
    found = _of_each_host([asked, windows], rank)
    counts = {host: int(count) for host, (_, count) in found.items()}
    return HostWindows(counts, sum(int(count) for count, _ in found.values()))


def _of_each_host(content: Any, rank: Rank) -> dict[str, Any]:
    """What every host holds, by its name and in the order of hosts, on every rank; all must call it.

    Only one rank of a host sends, for all have read the same files.
    """
    everyone = gather([rank.host, content] if rank.local_rank == 0 else None, rank)
    of_hosts = [each for each in everyone if each]
    return {str(host) or f"host {turn}": each for turn, (host, each) in enumerate(of_hosts, start=1)}


def _check_files(train: DataSource, rank: Rank) -> None:
    found = _of_each_host(train.is_empty, rank)
    if without := [host for host, empty in found.items() if empty]:
        raise DataError(
            f"No file of the channel train came to {listed(without)}, for it is divided among {len(found)} hosts "
            "(ShardedByS3Key): give it a file for each host or more, or make it FullyReplicated."
        )


def _put_together(split: str, mine: Sequence[Example], rank: Rank, say: Callable[[str], None]) -> list[Example]:
    """The questions of all hosts, in the order of hosts, on every rank; every rank must call it.

    Raises DataError where there is none, or where two hosts have a question of one id, by which answers are measured.
    """
    parts = list(_of_each_host(list(map(_fields, mine)), rank).values())
    examples = [_example(fields) for part in parts for fields in part]
    ids = {example.id for example in examples}
    if not examples or len(ids) < len(examples):
        fault = "has no question on any host" if not examples else "has questions of one id on two hosts"
        raise DataError(f"The channel of {split} data {fault} (ShardedByS3Key): correct its files.")
    hosts = ", ".join(str(len(part)) for part in parts[:8]) + (", …" if len(parts) > 8 else "")
    say(f"{split} data: divided among {len(parts)} hosts (ShardedByS3Key), put together: {hosts}")
    return examples


def _fields(example: Example) -> list[Any]:
    return [example.id, example.question, example.context, [[answer.text, answer.start] for answer in example.answers]]


def _example(fields: Sequence[Any]) -> Example:
    name, question, context, answers = fields
    return Example(str(name), str(question), str(context), tuple(Answer(str(text), int(at)) for text, at in answers))


def _check_same(splits: Mapping[str, Questions], rank: Rank) -> None:
    """Raises DataError where hosts hold different questions of a split that each should hold whole; all must call it.

    Ranks that cut another data set into shares would train on some questions twice and on others never, or wait for
    each other for ever.
    """
    everyone = gather({split: each.digest for split, each in splits.items()}, rank)
    for split, each in splits.items():
        if len({found[split] for found in everyone}) > 1:
            raise DataError(
                f"The {split} data differs between hosts, though its channel is not ShardedByS3Key "
                f"({rank.host or 'this host'} has {counted(each.count, 'question')}): give all hosts the same files."
            )
