"""The automatic partition: the coarsest cut of the model whose balance is close to the best.

A coarse cut needs few messages. So modules are opened (replaced by their children) one by one, the largest first, and
the first cut is used whose fullest partition is nearly as small as in the best cut.
"""

from .balance import runs, smallest_bound
from .module_tree import ModuleTree, memory_of
from .ties import Cut, Group, cut

_GOOD_ENOUGH = 1.10  # times the fullest partition of the best cut
_NEAR_IDEAL = 1.03  # times the average of all partitions: finer cuts are not tried
_SMALL = 0.05  # share of the average
_TOO_SMALL_TO_OPEN = 0.02  # share of the average
_MOST_OPENED = 200


def automatic(tree: ModuleTree, degree: int) -> tuple[Cut, dict[str, int]]:
    """A cut and the partition of each unit. If there are too many partitions, ValueError with the possible number."""
    candidates = _candidates(tree, degree)
    if candidates[-1].most_partitions < degree:
        raise ValueError(candidates[-1].most_partitions)
    fitting = [(_fullest(each, degree), each) for each in candidates if each.most_partitions >= degree]
    best = min(fullest for fullest, _ in fitting)
    coarsest = next(each for fullest, each in fitting if fullest <= _GOOD_ENOUGH * best)
    groups = _merge_small_groups(coarsest, degree)
    costs = [group.cost() for group in groups]
    placed = runs(costs, degree, coarsest.fixed.cost(), empty_first=coarsest.anchored)
    partitions = dict.fromkeys(coarsest.fixed.names, 0)
    for group, index in zip(groups, placed, strict=True):
        partitions.update(dict.fromkeys(group.names, index))
    return coarsest, partitions


def _merge_small_groups(best: Cut, degree: int) -> list[Group]:
    """Merge small groups into the large one before them, such as position embeddings into word embeddings.

    A small group hardly changes the balance, but on its own it may cost a message in each direction.
    """
    average = sum(group.cost() for group in [best.fixed, *best.groups]) / degree
    merged: list[Group] = []
    room = 0.0
    for left, group in zip(range(len(best.groups), 0, -1), best.groups, strict=True):
        cost = group.cost()
        if cost <= room and len(merged) + left + best.anchored > degree:
            merged[-1].absorb(group)
            room -= cost
        else:
            merged.append(Group(list(group.names), dict(group.tensors)))
            room = _SMALL * average if cost > _SMALL * average else 0.0
    return merged


def _fullest(each: Cut, degree: int) -> float:
    costs = [group.cost() for group in each.groups]
    return smallest_bound(costs, degree, each.fixed.cost())


def _candidates(tree: ModuleTree, degree: int) -> list[Cut]:
    """Cuts from coarse to fine, until one is nearly ideal or no module worth opening is left."""

    def cost(name: str) -> float:
        return memory_of(tree.tensors(name))

    opened, units = ([""], list(tree.children(""))) if tree.can_open("") else ([], [])
    cuts = [cut(tree, opened, units)] if units else [cut(tree, [""], [])]
    average = cost("") / degree
    while len(opened) < _MOST_OPENED:
        latest = cuts[-1]
        fits = latest.most_partitions >= degree
        if fits and _fullest(latest, degree) <= _NEAR_IDEAL * average:
            break
        least = _TOO_SMALL_TO_OPEN * average if fits else 0.0
        openable = [name for name in units if tree.can_open(name) and tree.tensors(name) and cost(name) >= least]
        if not openable:
            break
        largest = max(openable, key=cost)
        place = units.index(largest)
        units[place : place + 1] = tree.children(largest)
        opened.append(largest)
        cuts.append(cut(tree, opened, units))
    return cuts
