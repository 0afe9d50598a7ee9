"""Partitions of models: automatic ones by parameters, manual ones by contexts, and their errors."""

from collections.abc import Callable
from itertools import combinations_with_replacement, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from berth.smdistributed.modelparallel.parameters import parse
from berth.smdistributed.modelparallel.torch import balance, partition_table
from berth.smdistributed.modelparallel.torch.module_tree import ModuleTree
from berth.smdistributed.modelparallel.torch.partition import (
    PartitionError,
    owners,
    partition,
    plan,
    set_partition,
)
from berth.smdistributed.modelparallel.torch.state import ProcessState, state


def automatic(module: nn.Module, degree: int) -> dict[str, int]:
    return plan(module, parse({"partitions": degree}))


@pytest.fixture
def initialized(monkeypatch: pytest.MonkeyPatch) -> ProcessState:
    """The library's state after init with three partitions."""
    monkeypatch.setattr(state, "initialized", True)
    monkeypatch.setattr(state, "parameters", parse({"partitions": 3}))
    return state


class Encoder(nn.Module):
    """Layers in a ModuleList, which itself is never called."""

    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.layer = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layer:
            x = layer(x)
        return x


class Tied(nn.Module):
    """A model whose embedding and head share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.encoder = Encoder(4)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.encoder(self.words(ids)))
        return result


class Own(nn.Module):
    """A model that reads a parameter of one of its modules itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Encoder(2)
        self.head = nn.Linear(8, 50)
        self.scores = self.head.weight


def parametrized() -> nn.Module:
    """Two linear layers, and a parameter that torch computes anew for each use."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model.scale = nn.Parameter(torch.ones(1))
    return nn.utils.parametrize.register_parametrization(model, "scale", nn.Identity())


def linear_and(*more: nn.Module) -> nn.Sequential:
    """Two linear layers, each before one of these modules."""
    return nn.Sequential(nn.Linear(4, 4), more[0], nn.Linear(4, 4), *more[1:])


PLANS: dict[str, tuple[nn.Module, int, dict[str, int]]] = {
    "one partition needs no plan": (Encoder(4), 1, {}),
    "layers of a list are split evenly": (Encoder(4), 2, {"layer.2": 1, "layer.3": 1}),
    "every layer is a partition": (Encoder(4), 4, {"layer.1": 1, "layer.2": 2, "layer.3": 3}),
    "layers of a dict are split": (
        nn.Sequential(nn.ModuleDict({"left": nn.Linear(4, 4), "right": nn.Linear(4, 4)})),
        2,
        {"0.right": 1},
    ),
    "an inner module stays whole": (nn.Sequential(Encoder(4), Encoder(4)), 2, {"1": 1}),
    "an inner module is split for better balance": (
        nn.Sequential(Encoder(6), Encoder(2)),
        2,
        {"0.layer.4": 1, "0.layer.5": 1, "1": 1},
    ),
    "an inner module stays whole if a better balance gains little": (
        nn.Sequential(nn.Sequential(nn.Linear(93, 1), nn.Linear(9, 1)), nn.Linear(89, 1)),
        2,
        {"1": 1},
    ),
    "modules that share a parameter stay together": (Tied(), 2, {f"encoder.layer.{each}": 1 for each in (1, 2, 3)}),
    "a small module stays with its large predecessor": (
        nn.Sequential(nn.Embedding(110, 10), nn.LayerNorm(10), nn.Linear(10, 50), nn.Linear(50, 10)),
        2,
        {"2": 1, "3": 1},
    ),
    "a parameter that its parent reads stays on partition 0": (Own(), 2, {"body": 1}),
    "a module without parameters follows its predecessor": (
        linear_and(nn.Tanh(), nn.Tanh(), nn.Softmax(-1)),
        2,
        {"2": 1, "3": 1, "4": 1},
    ),
    "a reused module without parameters stays on partition 0": (linear_and(nn.Tanh(), *[nn.Tanh()] * 2), 2, {"2": 1}),
    "a parametrized module is not split": (
        nn.Sequential(parametrized(), nn.Linear(4, 1)),
        2,
        {"1": 1},
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_automatic_plan(name: str) -> None:
    module, degree, expected = PLANS[name]
    assert automatic(module, degree) == expected


@pytest.mark.parametrize(
    ("module", "degree", "most"),
    [
        (Tied(), 8, 5),
        # MultiheadAttention reads the weight of its projection instead of calling the projection.
        (nn.Sequential(nn.MultiheadAttention(8, 2), nn.Linear(8, 8)), 3, 2),
        (nn.MultiheadAttention(8, 2), 2, 1),
    ],
    ids=["tied modules count once", "module of torch", "one module"],
)
def test_more_partitions_than_modules_are_an_error(module: nn.Module, degree: int, most: int) -> None:
    with pytest.raises(PartitionError) as caught:
        automatic(module, degree)
    assert str(caught.value) == (
        f"{type(module).__name__} has no more than {most} modules with parameters of their own to put on {degree} "
        "partitions; choose fewer partitions."
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 4)))
    with pytest.raises(PartitionError, match=r"^1 is TorchScript, which can't be cut into partitions; give the module"):
        automatic(model, 2)
    assert automatic(model, 1) == {}


class Nested(nn.Module):
    """The example of AWS's documentation."""

    def __init__(self) -> None:
        super().__init__()
        with partition(1):
            self.child0 = nn.Linear(2, 2)
            with partition(2):
                self.child1 = nn.Sequential(nn.Linear(2, 2))
            self.child2 = nn.Linear(2, 2)
        self.child3 = nn.Linear(2, 2)


def manual(module: nn.Module, degree: int = 3, default: int = 0) -> dict[str, int]:
    return plan(module, parse({"partitions": degree, "auto_partition": False, "default_partition": default}))


@pytest.mark.usefixtures("initialized")
def test_innermost_context_decides_and_default_partition_gets_the_rest() -> None:
    assert manual(Nested()) == {"child0": 1, "child1": 2, "child2": 1}
    assert manual(Nested(), default=1) == {"child0": 1, "child1": 2, "child2": 1, "child3": 1}
    assert nn.Module.__init__.__name__ == "__init__"


@pytest.mark.usefixtures("initialized")
def test_automatic_partition_ignores_contexts() -> None:
    assert automatic(Nested(), 2) == {"child2": 1, "child3": 1}


@pytest.mark.usefixtures("initialized")
def test_set_partition_includes_inner_modules() -> None:
    model = nn.Sequential(Encoder(2), Encoder(2))
    set_partition(model[1], 1)
    set_partition(model[1].layer[1], 2)
    assert manual(model) == {"1.layer.0": 1, "1.layer.1": 2}


@pytest.mark.usefixtures("initialized")
def test_shared_parameter_moves_its_module_with_a_warning() -> None:
    model = Tied()
    set_partition(model.encoder, 2)
    set_partition(model.head, 1)
    set_partition(model.encoder.layer[0], 1)
    with pytest.warns(UserWarning, match="head moves to partition 0, because it shares a tensor with a module there"):
        assert manual(model) == {"encoder.layer.0": 1, **{f"encoder.layer.{each}": 2 for each in (1, 2, 3)}}


@pytest.mark.usefixtures("initialized")
def test_partition_without_modules_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    set_partition(model[1], 2)
    with pytest.raises(PartitionError, match=r"^Partition 1 has no modules; put some there with smp.partition\(1\)"):
        manual(model)


@pytest.mark.parametrize("index", [3, -1, True, "1"])
@pytest.mark.usefixtures("initialized")
def test_partition_that_does_not_exist_is_an_error(index: Any) -> None:
    with pytest.raises(ValueError, match="the model has 3, so choose from 0 to 2"):
        set_partition(nn.Linear(1, 1), index)
    with pytest.raises(ValueError, match="No partition"), partition(index):
        pass


def test_set_partition_needs_init_and_an_unpartitioned_model(
    initialized: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrapped:
        partitioned = True

    monkeypatch.setattr(initialized, "model", Wrapped())
    with pytest.raises(RuntimeError, match=r"partitioned already; call smp\.set_partition before the first step"):
        set_partition(nn.Linear(1, 1), 0)
    monkeypatch.setattr(initialized, "initialized", False)
    with pytest.raises(RuntimeError, match=r"call smp\.init\(\) first"), partition(0):
        pass


def test_owners_has_every_name_of_parameters_and_buffers() -> None:
    model = nn.Sequential(Tied(), nn.BatchNorm1d(20))
    partitions = owners(model, {"0.encoder": 1, "1": 2})
    assert partitions["0.encoder.layer.3.0.bias"] == 1
    assert partitions["0.words.weight"] == partitions["0.head.weight"] == 0
    assert partitions["1.running_mean"] == partitions["1.weight"] == 2


def test_table_has_partitions_modules_parameters_and_memory() -> None:
    model = Tied()
    shown = partition_table.table(model, {f"encoder.layer.{each}": 1 for each in (2, 3)}, 2)
    assert shown.splitlines() == [
        "partition  parameters   memory  modules",
        "        0         304  4.8 KiB  words, encoder.layer.0-1, head",
        "        1         144  2.2 KiB  encoder.layer.2-3",
        "memory: parameters, gradients and Adam's moments, without activations",
    ]


def test_memory_counts_optimizer_state_of_trained_parameters_only() -> None:
    model = nn.Linear(1024, 1024, bias=False)
    assert "4.0 MiB" in partition_table.table(model.requires_grad_(requires_grad=False), {}, 1)
    assert "16.0 MiB" in partition_table.table(model.requires_grad_(requires_grad=True), {}, 1)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a.0", "a.1", "a.2", "b"], ["a.0-2", "b"]),
        (["a.0", "a.2", "b.0"], ["a.0", "a.2", "b.0"]),
        (["a.9", "a.10"], ["a.9-10"]),
        (["0", "1"], ["0-1"]),
        ([], []),
    ],
)
def test_consecutive_names_become_a_range(names: list[str], shown: list[str]) -> None:
    assert list(partition_table.ranges(names)) == shown


# Properties of any model


@st.composite
def models(draw: st.DrawFn, depth: int = 3) -> nn.Module:
    """Trees of modules with linear layers of several sizes, shared layers, and modules without parameters."""
    shared = nn.Linear(3, 3)

    def build(level: int) -> nn.Module:
        kind = draw(st.sampled_from(["linear", "linear", "tanh", "shared", "sequential", "encoder"]))
        if level == 0 or kind == "linear":
            return nn.Linear(draw(st.integers(1, 8)), draw(st.integers(1, 8)))
        if kind == "tanh":
            return nn.Tanh()
        if kind == "shared":
            return shared
        if kind == "encoder":
            return Encoder(draw(st.integers(1, 3)), draw(st.integers(1, 5)))
        return nn.Sequential(*(build(level - 1) for _ in range(draw(st.integers(1, 4)))))

    return nn.Sequential(*(build(depth - 1) for _ in range(draw(st.integers(2, 5)))))


@pytest.mark.slow
@given(models(), st.integers(2, 5))
@settings(max_examples=200)
def test_plan_of_any_model_is_valid(model: nn.Module, degree: int) -> None:
    try:
        partitions = automatic(model, degree)
    except PartitionError:
        leaves = {id(each) for each in model.modules() if isinstance(each, nn.Linear)}
        several = len(leaves) < len(
            [name for name, each in model.named_modules(remove_duplicate=False) if id(each) in leaves]
        )
        assert len(leaves) < degree or several
        return
    tree = ModuleTree(model)
    assert set(partitions.values()) == set(range(1, degree)), "only partition 0 may be missing in the plan"
    assert not [(a, b) for a in partitions for b in partitions if a.startswith(f"{b}.")], (
        "a planned module contains another one"
    )
    assert all(tree.is_called(name) for name in partitions)
    placed: dict[int, int] = {}
    tensors = dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
    for name, index in owners(model, partitions).items():
        assert placed.setdefault(id(tensors[name]), index) == index, f"{name} is on two partitions"
    held = [0.0] * degree
    places = owners(model, partitions)
    for name, parameter in model.named_parameters():
        held[places[name]] += parameter.numel()
    assert all(held), "a partition has no parameters"


def brute_force(costs: list[float], parts: int, first: float) -> float:
    """The smallest possible maximum load, by trying all splits."""
    items = [first, *costs]
    splits = combinations_with_replacement(range(1, len(items) + 1), parts - 1)
    return min(max(sum(items[at:to]) for at, to in pairwise((0, *split, len(items)))) for split in splits)


loads = st.lists(st.integers(1, 20).map(float), min_size=1, max_size=7)


@given(loads, st.integers(1, 4), st.integers(0, 20).map(float))
def test_runs_have_the_smallest_possible_maximum(costs: list[float], parts: int, first: float) -> None:
    if len(costs) + 1 < parts:
        with pytest.raises(ValueError, match="can't make"):
            balance.runs(costs, parts, first, empty_first=True)
        return
    placed = balance.runs(costs, parts, first, empty_first=True)
    assert placed == sorted(placed)
    assert set(range(1, parts)) <= set(placed)
    held = [first, *[0.0] * (parts - 1)]
    for cost, index in zip(costs, placed, strict=True):
        held[index] += cost
    best = brute_force(costs, parts, first)
    assert max(held) == best
    assert balance.smallest_bound(costs, parts, first) == pytest.approx(best)


@pytest.mark.parametrize("make", [lambda: balance.runs([1.0], 2), lambda: balance.runs([], 1)])
def test_too_few_costs_are_an_error(make: Callable[[], list[int]]) -> None:
    with pytest.raises(ValueError, match="can't make"):
        make()
