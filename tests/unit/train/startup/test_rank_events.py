"""Warnings that follow from the events of a host's ranks."""

from pathlib import Path

import pytest

from berth.train.startup.rank_events import alone_sentence, note, read_events, script_sentence

JOINED = ["process group requested", "process group of 4"]
NO_GROUP = "4 ranks ran, but no process group of 4 was formed, so each did the whole work: call torch."
DIFFER = "the ranks' weights differ: the program joined 4 ranks in a process group and exchanged no gradients over it"
FIRST, SECOND = ([*JOINED, f"weights after the first step {digest}"] for digest in ("1a2b3c4d", "4d3c2b1a"))
TORCHRUN = ["started by torchrun on this host alone", "process group requested", "process group of 2"]
APART = "each of the 4 ranks trained its own model, because accelerate did not join a process group: set use_cpu"


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        ([], ""),
        ([[], []], NO_GROUP),
        ([["process group requested", "process group of 1"]] * 2, NO_GROUP),
        ([["process group requested", "process group of 2"]] * 2, NO_GROUP),
        ([JOINED, JOINED], ""),
        ([[*JOINED, "process group requested", "process group of 1"]], ""),
        ([[], ["process group of 2", "process group of 16", "process group of "]], ""),
        ([TORCHRUN] * 2, "4 trainings ran: mpirun started the program 4 times, and each started ranks with torchrun"),
        ([FIRST, SECOND], DIFFER),
        ([FIRST, FIRST], ""),
        ([FIRST, JOINED], ""),
        ([FIRST, [*JOINED, "exchanged before the first step", *SECOND]], ""),
        ([[*FIRST, "mpi"], SECOND], ""),
        ([["process group requested"], []], ""),
        ([["mpi"], ["mpi"]], ""),
        ([[*JOINED, "accelerate together"]] * 2, ""),
        ([[*JOINED, "accelerate apart"]] * 2, APART),
        ([["accelerate apart"]] * 2, APART),
        ([[*JOINED, "accelerate apart", "accelerate together"]] * 2, ""),
        ([[*JOINED, "accelerate without fsdp"]] * 2, "fsdp had no effect"),
    ],
    ids=[
        "no ranks",
        "no events",
        "group of one",
        "group per host",
        "one group",
        "second group of one",
        "largest group of one rank",
        "torchrun under mpirun",
        "weights differ",
        "weights are equal",
        "weights of one rank",
        "weights differ after exchange",
        "weights differ with mpi4py",
        "failed group",
        "mpi4py",
        "accelerate",
        "accelerate apart in a group",
        "accelerate without a group",
        "accelerate apart, then together",
        "accelerate without fsdp",
    ],
)
def test_alone_sentence(ranks: list[list[str]], sentence: str) -> None:
    warning = alone_sentence(ranks, 4)
    assert warning.startswith(sentence)
    assert bool(warning) == bool(sentence)


def test_alone_sentence_is_empty_for_one_rank() -> None:
    assert alone_sentence([[]], 1) == ""


@pytest.mark.parametrize(
    ("gpus", "hosts", "sentence_start"),
    [
        (0, 1, ""),
        (1, 1, ""),
        (8, 1, "7 of 8 GPUs may stay idle"),
        (0, 2, "2 hosts may each train their own model"),
        (8, 2, "2 hosts may each train their own model and 7 of 8 GPUs may stay idle"),
    ],
)
def test_script_sentence(gpus: int, hosts: int, sentence_start: str) -> None:
    assert script_sentence(gpus, hosts).partition(",")[0] == sentence_start


def test_events_are_read_in_order_per_rank(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        (tmp_path / rank).touch()
    note(str(tmp_path / "1"), "mpi")
    note(str(tmp_path / "1"), "process group of 2")
    note(str(tmp_path / "2"), "of a file that is gone")
    assert read_events(tmp_path) == [[], ["mpi", "process group of 2"]]
