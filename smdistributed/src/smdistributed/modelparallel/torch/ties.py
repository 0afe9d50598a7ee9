"""Modules that must be on one partition: those that share a tensor; those without tensors and their predecessor."""

from dataclasses import dataclass, field

from .module_tree import ModuleTree, Tensors, memory_of


@dataclass
class Group:
    """Modules that stay together, in the order of their calls."""

    names: list[str] = field(default_factory=list)
    tensors: Tensors = field(default_factory=dict)

    def add(self, tree: ModuleTree, name: str) -> None:
        self.names.append(name)
        self.tensors.update(tree.tensors(name))

    def absorb(self, other: "Group") -> None:
        self.names += other.names
        self.tensors.update(other.tensors)

    def cost(self) -> float:
        """Bytes of the tensors in training; a shared one counts once."""
        return memory_of(self.tensors)


@dataclass
class Cut:
    """A way to cut a tree: `opened` modules run on partition 0, `units` are cut out, in the order of their calls.

    groups: units that may be on any partition. fixed: units that must be on partition 0.
    """

    opened: list[str]
    units: list[str]
    fixed: Group
    groups: list[Group]

    @property
    def anchored(self) -> bool:
        """Whether partition 0 has tensors already, so that it needs no group."""
        return bool(self.fixed.tensors)

    @property
    def most_partitions(self) -> int:
        """The most partitions for which each has tensors."""
        return len(self.groups) + self.anchored


def cut(tree: ModuleTree, opened: list[str], units: list[str]) -> Cut:
    """Create a cut by grouping the units that must stay together."""
    fixed = Group()
    for name in opened:
        fixed.tensors.update(tree.own_tensors(name))
    together = _components(tree, units, fixed.tensors)
    groups: dict[int, Group] = {}
    last = fixed
    for name in units:
        if tree.tensors(name):
            key = together[name]
            last = fixed if key < 0 else groups.setdefault(key, Group())
            last.add(tree, name)
        elif tree.is_shared(name):
            fixed.add(tree, name)
        else:
            last.add(tree, name)
    return Cut(list(opened), list(units), fixed, list(groups.values()))


def _components(tree: ModuleTree, units: list[str], fixed: Tensors) -> dict[str, int]:
    """Unit → component of units that share tensors, numbered by its first unit; -1: shares a fixed tensor."""
    components = dict.fromkeys(fixed, -1)
    parents = {-1: -1}

    def root(key: int) -> int:
        while parents[key] != key:
            key = parents[key]
        return key

    for number, name in enumerate(units):
        parents[number] = number
        for tensor in tree.tensors(name):
            first, second = sorted((root(components.setdefault(tensor, number)), root(number)))
            parents[second] = first
    return {name: root(number) for number, name in enumerate(units)}
