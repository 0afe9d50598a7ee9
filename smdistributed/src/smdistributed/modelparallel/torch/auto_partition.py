"""The automatic partition: the coarsest cut that balances about as well as the finest.

Few cuts mean few messages, so modules are opened one by one, the largest first, and the first cut is taken whose
fullest partition is nearly as small as any cut's.
"""

from .balance import runs, smallest_bound
from .module_tree import ModuleTree, memory_of
from .ties import Cut, Group, cut

_GOOD_ENOUGH = 1.10  # times the fullest partition of the best cut
_NEAR_IDEAL = 1.03  # times the average of all partitions: nothing is gained by looking further
_SMALL = 0.05  # of the average
_TOO_SMALL_TO_OPEN = 0.02  # of the average
_MOST_OPENED = 200


def automatic(tree: ModuleTree, degree: int) -> tuple[Cut, dict[str, int]]:
    """A cut, and the partition of each of its units. ValueError, with how many would fit, for too many partitions."""
    candidates = _candidates(tree, degree)
    if candidates[-1].most_partitions < degree:
        raise ValueError(candidates[-1].most_partitions)
    fitting = [(_fullest(each, degree), each) for each in candidates if each.most_partitions >= degree]
    best = min(fullest for fullest, _ in fitting)
    chosen = next(each for fullest, each in fitting if fullest <= _GOOD_ENOUGH * best)
    groups = _small_ones_absorbed(chosen, degree)
    costs = [group.cost() for group in groups]
    placed = runs(costs, degree, chosen.fixed.cost(), empty_first=chosen.anchored)
    partitions = dict.fromkeys(chosen.fixed.names, 0)
    for group, index in zip(groups, placed, strict=True):
        partitions.update(dict.fromkeys(group.names, index))
    return chosen, partitions


def _small_ones_absorbed(chosen: Cut, degree: int) -> list[Group]:
    """Groups with the small modules that follow a large one in it: a table of positions stays with that of the words.

    Where a small module goes hardly changes the balance, and alone it costs a message each way.
    """
    average = sum(group.cost() for group in [chosen.fixed, *chosen.groups]) / degree
    found: list[Group] = []
    room = 0.0
    for left, group in zip(range(len(chosen.groups), 0, -1), chosen.groups, strict=True):
        cost = group.cost()
        if cost <= room and len(found) + left + chosen.anchored > degree:
            found[-1].absorb(group)
            room -= cost
        else:
            found.append(Group(list(group.names), dict(group.tensors)))
            room = _SMALL * average if cost > _SMALL * average else 0.0
    return found


def _fullest(each: Cut, degree: int) -> float:
    costs = [group.cost() for group in each.groups]
    return smallest_bound(costs, degree, each.fixed.cost())


def _candidates(tree: ModuleTree, degree: int) -> list[Cut]:
    """Cuts from coarse to fine, until one is near the ideal or nothing of weight can be opened."""

    def cost(name: str) -> float:
        return memory_of(tree.tensors(name))

    opened, units = ([""], list(tree.children(""))) if tree.can_open("") else ([], [])
    found = [cut(tree, opened, units)] if units else [cut(tree, [""], [])]
    average = cost("") / degree
    while len(opened) < _MOST_OPENED:
        latest = found[-1]
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
        found.append(cut(tree, opened, units))
    return found
