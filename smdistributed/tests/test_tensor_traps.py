"""Traps of tensor parallelism: each case goes wrong without the library's cure, and is right with it.

The patches that take a cure away are in traps_layers.py and traps_exchanges.py. test_no_hang.py has the trap of a rank
that continues after a failed step, and test_tensor.py that of microbatches in the order of arrival.
"""

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import rank_jobs
import torch
from torch import nn

from bench.scripts import model_parallel_launch
from berth.smdistributed.modelparallel.torch import module_tree
from berth.smdistributed.modelparallel.torch.tensor import functions, split

OPENING = """
import logging, threading
logging.disable(logging.WARNING)
smp.init({"ddp": True})
import tensor_traps
"""
TWO = [
    "local sizes", "views", "streams", "broadcast of shares", "repeated averages", "emptied state", "Adam",
]  # fmt: skip
FOUR = ["remote output", "remote input", "cut layer"]


def outcomes(names: list[str], size: int, folder: Path) -> dict[str, list[str]]:
    body = f"{OPENING}result(tensor_traps.outcomes({names}))"
    results: list[dict[str, list[str]]] = rank_jobs.run(body, size, folder, imports=["pipeline_models"])
    return results[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What went wrong on two ranks, with and without the cure."""
    return outcomes(TWO, 2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What went wrong on four ranks, with and without the cure."""
    return outcomes(FOUR, 4, tmp_path_factory.mktemp("four"))


@pytest.mark.nightly
@pytest.mark.parametrize("trap", TWO)
def test_two_ranks_need_the_cure(two: dict[str, list[str]], trap: str) -> None:
    cured, without = two[trap]
    assert cured == ""
    assert without


@pytest.mark.nightly
@pytest.mark.parametrize("trap", FOUR)
def test_four_ranks_need_the_cure(four: dict[str, list[str]], trap: str) -> None:
    cured, without = four[trap]
    assert without
    assert cured == ""


def outcome(trap: str, size: int, folder: Path, *, cured: bool) -> str:
    """What goes wrong in a launch of its own: it may end the ranks, or hang until a timer ends them."""
    folder = folder / str(cured)
    folder.mkdir()
    timer = 'threading.Timer(60, lambda: (print("it hangs", flush=True), os._exit(1))).start()'
    body = f"{OPENING}{timer}\nresult(tensor_traps.outcome({trap!r}, cured={cured}))\nsys.stdout.flush()\nos._exit(0)"
    try:
        results: list[str] = rank_jobs.run(body, size, folder, imports=["pipeline_models"])
    except AssertionError as error:
        return f"A rank ended: {error}"
    return results[0]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("trap", "size", "words"),
    [
        ("masks", 2, "of a distributed layer"),
        ("uneven heads", 4, "of a distributed layer"),
        ("late comparison", 2, "the optimizer used gradients of crossed microbatches"),
        ("failures counted twice", 4, "failed steps: [1, 1, 1, 2]"),
    ],
)
def test_ranks_that_fail_need_the_cure(trap: str, size: int, words: str, tmp_path: Path) -> None:
    assert outcome(trap, size, tmp_path, cured=True) == ""
    assert words in outcome(trap, size, tmp_path, cured=False)


@pytest.mark.nightly
def test_comparisons_among_sums_make_gloo_abort(tmp_path: Path) -> None:
    """In a group of their own, the ranks end with a sentence."""
    cured, without = (outcome("comparisons among sums", 2, tmp_path, cured=cured) for cured in (True, False))
    assert "RankLost: Rank " in cured
    assert "terminate called" not in cured
    assert "terminate called" in without


@pytest.mark.slow
def test_names_of_awss_layers_do_not_need_tensor_parallel_ranks(tmp_path: Path) -> None:
    """model_creation(tensor_parallelism=True) in a job with groups of one rank."""
    cured, without = outcomes(["names"], 1, tmp_path)["names"]
    assert cured == ""
    assert "seq_layers" in without


def is_freed(monkeypatch: pytest.MonkeyPatch, forward: Any) -> bool:
    """Whether an input of `Shared` with this forward is freed after its last use."""
    monkeypatch.setattr(functions.Shared, "forward", staticmethod(forward))
    value = torch.ones(2, requires_grad=True) * 2
    functions.shared(value)
    reference = weakref.ref(value)
    del value
    gc.collect()
    return reference() is None


def test_view_in_the_attributes_of_its_base_is_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_freed(monkeypatch, functions.Shared.forward)
    assert not is_freed(monkeypatch, lambda ctx, tensor: tensor.view_as(tensor))


def test_distributed_layer_is_never_opened() -> None:
    layer = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model = nn.Sequential(layer)
    assert module_tree.ModuleTree(model).can_open("0")
    split.mark_distributed(layer)
    assert not module_tree.ModuleTree(model).can_open("0")


def test_ranks_with_more_heads_count_the_same_memory() -> None:
    """Three heads of two features on two ranks."""
    sizes = set()
    for rank in range(2):
        weight = nn.Parameter(torch.ones(6, 4))
        split.keep_share(weight, 0, split.feature_indexes(3, 2, width=2), rank)
        sizes.add((tuple(weight.shape), module_tree.memory_of({0: weight})))
    assert sizes == {((2, 4), 192.0), ((4, 4), 192.0)}


FREES = """
import pathlib, resource
def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20
first = bytearray(b"x") * (30 << 20)
del first
before = resident()
large, small = [], []
for _ in range(20):
    large.append(bytearray(b"x") * (4 << 20))
    small.append(bytearray(b"x") * 2000)
large.clear()
print(resident() - before)
"""
"""After the first large block is freed, glibc takes such blocks from its heap, which keeps them."""


def test_resident_memory_is_measured_without_what_glibc_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    variables: dict[str, str] = {}

    def run(*_: Any, **how: Any) -> None:
        variables.update({name: text for name, text in how.items() if name.startswith("MALLOC")})

    monkeypatch.setattr(rank_jobs, "run", run)
    model_parallel_launch.call("a function", 2)
    kept = [
        int(subprocess.run([sys.executable, "-c", FREES], env=each, check=True, capture_output=True).stdout)
        for each in (variables, {})
    ]
    assert kept[0] < 10
    assert kept[1] > 60
