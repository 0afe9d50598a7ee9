"""Groups modules that stay on one partition.

Modules that share a tensor are a group. A module without tensors joins the group of the module before it, or stays on
partition 0 if it occurs several times in the tree.
"""

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

    groups: units that may be on any partition. fixed: units that must be on partition 0, with their tensors and the
    opened modules' own.
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
        """The largest number of partitions that all have tensors."""
        return len(self.groups) + self.anchored


def cut(tree: ModuleTree, opened: list[str], units: list[str]) -> Cut:
    """Create a cut by grouping the units that must stay together."""
    fixed = Group()
    for name in opened:
        fixed.tensors.update(tree.own_tensors(name))
    components = _components(tree, units, fixed.tensors)
    groups: dict[int, Group] = {}
    last = fixed
    for name in units:
        if tree.tensors(name):
            key = components[name]
            last = fixed if key < 0 else groups.setdefault(key, Group())
            last.add(tree, name)
        elif tree.is_shared(name):
            fixed.add(tree, name)
        else:
            last.add(tree, name)
    return Cut(list(opened), list(units), fixed, list(groups.values()))


def _components(tree: ModuleTree, units: list[str], fixed: Tensors) -> dict[str, int]:
    """Maps each unit to its component of units that share tensors: the index of the component's first unit.

    -1: the component has a tensor of `fixed`.
    """
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
