"""Random module trees, partitions and schedules: hypothesis draws them on rank 0, all ranks run them, rank 0 compares.

A tree is nested tuples, which say how to build a module. Every module except `Fork` and `Join` takes and
returns one tensor. Modules call each other as in real models: in a row, around, twice, without gradients, in place.
"""

import itertools
import traceback
from dataclasses import dataclass

import hypothesis
import pipeline_cases
import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from hypothesis import strategies as st
from torch import nn

WIDTH, ANSWERS = 20, 5


class Leaf(nn.Module):
    """Has a keyword `scale`, which is not a tensor, and `mask`, which needs no gradient."""

    def __init__(self, frozen=False):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.linear.requires_grad_(not frozen)

    def forward(self, x, *, scale=1.0, mask=None):
        x = torch.tanh(self.linear(x)) * scale
        return x if mask is None else x.masked_fill(mask, 0.0)


class Tied(nn.Module):
    """Two modules that share their weight but not their bias."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.other.weight = self.one.weight

    def forward(self, x):
        return torch.tanh(self.other(torch.tanh(self.one(x))))


class Fork(nn.Module):
    """Returns several tensors in containers."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return {"left": torch.tanh(self.left(x)), "right": [(self.right(x), 0.5)]}


class Join(nn.Module):
    """Takes the result of Fork."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, state, more):
        tensor, scale = state["right"][0]
        return self.norm(state["left"] + tensor * scale + more["x"])


class Around(nn.Module):
    """Calls its modules in one of several ways."""

    def __init__(self, way, inner):
        super().__init__()
        self.way, self.inner = way, nn.ModuleList(inner)
        if way == "fork":
            self.fork, self.join = Fork(), Join()

    def forward(self, x):
        return getattr(self, f"_{self.way}")(x)

    def _loop(self, x):
        for each in self.inner:
            x = each(x) * 0.9 if x.shape[-1] == WIDTH else x
        return x

    def _around(self, x):
        for each in self.inner:
            x = (x + each(x)) * 0.5
        return x

    def _skips(self, x):
        kept = []
        for each in self.inner:
            kept.append(x)
            x = each(x)
        for each in reversed(kept):
            x = (x + each) * 0.5
        return x

    def _twice(self, x):
        for each in self.inner:
            x = each(each(x))
        return x

    def _in_place(self, x):
        for each in self.inner:
            y = each(x)
            y += x
            x = y.mul_(0.5)
        return x

    def _no_grad(self, x):
        for each in self.inner:
            with torch.no_grad():
                y = each(x)
            x = x + 0.1 * y
        return x

    def _some(self, x):
        """Call only the first module."""
        return self.inner[0](x)

    def _fork(self, x):
        for each in self.inner:
            x = self.join(self.fork(each(x)), more={"x": x})
        return x


WAYS = ("loop", "around", "skips", "twice", "in_place", "no_grad", "some", "fork")


class Keywords(nn.Module):
    """Calls a leaf with keywords, one of them a tensor without gradient."""

    def __init__(self):
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x):
        return self.leaf(x, scale=0.8, mask=(torch.arange(WIDTH, device=x.device) % 3 == 0).expand(x.shape))


def module_of(tree):
    """The module of a tree."""
    name, inner = tree[0], [module_of(each) for each in tree[1:]]
    if inner:
        return nn.Sequential(*inner) if name == "row" else Around(name, inner)
    return {"leaf": Leaf, "norm": lambda: nn.LayerNorm(WIDTH), "frozen": lambda: Leaf(frozen=True), "tied": Tied,
            "keywords": Keywords, "relu": lambda: nn.ReLU(inplace=True)}[name]()  # fmt: skip


LEAVES = ("leaf", "norm", "frozen", "tied", "keywords", "relu")


@dataclass(frozen=True)
class Tree:
    """A model with a tree between a first and a last module that have parameters."""

    tree: tuple

    def build(self):
        return nn.Sequential(Leaf(), module_of(self.tree), nn.Linear(WIDTH, ANSWERS))


@dataclass(frozen=True)
class Placed:
    """Assigns a model's modules in order to a repeated list of partitions; None does not assign."""

    partitions: tuple

    def __call__(self, model):
        for each, index in zip(model.modules(), itertools.cycle(self.partitions)):
            if index is not None:
                smp.set_partition(each, index)


PLAIN = {"partitions": 2, "microbatches": 1, "ddp": True}
CHANGED_ON_ANOTHER_RANK = (Tree(("around", ("leaf",), ("leaf",), ("relu",))), PLAIN, None)
CHANGED_WITHOUT_GRADIENT = (Tree(("no_grad", ("leaf",), ("leaf",), ("relu",))), PLAIN, None)
"""hypothesis found: the caller's tensor did not change when a module of another rank changed it in place."""


def trees():
    leaves = st.sampled_from([(name,) for name in LEAVES])

    def above(inner):
        return st.builds(
            lambda name, below: (name, *below), st.sampled_from(("row", *WAYS)), st.lists(inner, min_size=1, max_size=4)
        )

    return st.builds(Tree, above(st.recursive(leaves, above, max_leaves=10)))


@st.composite
def cases(draw, partitions):
    """A tree, a configuration and the modules' partitions; None for the automatic partition."""
    config = {
        "partitions": draw(st.sampled_from(partitions)),
        "microbatches": draw(st.integers(1, 8)),
        "active_microbatches": draw(st.none() | st.integers(1, 8)),
        "pipeline": draw(st.sampled_from(["interleaved", "simple"])),
        "placement_strategy": draw(st.sampled_from(["cluster", "spread"])),
        "deterministic_server": draw(st.booleans()),
        "ddp": True,
    }
    index = st.none() | st.integers(0, config["partitions"] - 1)
    places = draw(st.none() | st.lists(index, min_size=2, max_size=12).map(tuple))
    if places is not None:
        config |= {"auto_partition": False, "default_partition": draw(st.integers(0, config["partitions"] - 1))}
    return draw(trees()), {name: each for name, each in config.items() if each is not None}, places


def trains(case, steps):
    """Whether one process can train it: torch rejects some changes in place."""
    tree, config, _ = case
    try:
        pipeline_cases.reference(tree, config["microbatches"] * dist.get_world_size() // config["partitions"], steps)
    except RuntimeError:
        return False
    return True


def run(case, steps):
    """On every rank: the result of `equality`, a text if it raises, None if the model has too few modules."""
    tree, config, places = case
    try:
        return pipeline_cases.equality(tree, config, steps, Placed(places) if places else None)
    except smp.PartitionError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def compared(count, steps, partitions, seed=0):
    """The equal cases, and hypothesis' report if one differs. All ranks call it; rank 0 gets the result."""
    if dist.get_rank():
        while (case := shared(None)) is not None:
            gathered(run(case, steps))
        return [], ""
    equal_cases = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=count, database=None, deadline=None, suppress_health_check=hypothesis.HealthCheck)
    @hypothesis.example(CHANGED_ON_ANOTHER_RANK)
    @hypothesis.example(CHANGED_WITHOUT_GRADIENT)
    @hypothesis.given(cases(partitions))
    def property_holds(case):
        hypothesis.assume(trains(case, steps))
        outcomes = gathered(run(shared(case), steps))
        hypothesis.assume(None not in outcomes)
        texts = [each for each in outcomes if isinstance(each, str)]
        assert not texts, (case, texts)
        assert not outcomes[0]["bad"], (case, outcomes[0])
        equal_cases.append(outcomes[0])

    try:
        property_holds()
        return equal_cases, ""
    except BaseException as error:
        return equal_cases, "".join(traceback.format_exception(error))
    finally:
        shared(None)


def shared(case):
    """Rank 0's case, on all ranks."""
    holder = [case]
    dist.broadcast_object_list(holder, 0)
    return holder[0]


def gathered(outcome):
    """The outcomes of all ranks."""
    outcomes = [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, outcome)
    return outcomes
