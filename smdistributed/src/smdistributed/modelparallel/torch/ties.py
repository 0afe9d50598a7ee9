"""What must be on one partition: modules that share a tensor, and those without tensors with what comes before."""

from dataclasses import dataclass, field

from .module_tree import ModuleTree, Tensors, memory_of


@dataclass
class Group:
    """Modules that go together, the first of them first."""

    names: list[str] = field(default_factory=list)
    tensors: Tensors = field(default_factory=dict)

    def add(self, tree: ModuleTree, name: str) -> None:
        self.names.append(name)
        self.tensors.update(tree.tensors(name))

    def absorb(self, other: "Group") -> None:
        self.names += other.names
        self.tensors.update(other.tensors)

    def cost(self) -> float:
        """Bytes of their tensors in training, a shared one once."""
        return memory_of(self.tensors)


@dataclass
class Cut:
    """A way to cut a tree: `opened` modules run on partition 0, `units` are cut out, in the order of their calls.

    `groups` are the units that can go anywhere, `fixed` those that share a tensor with an opened module.
    """

    opened: list[str]
    units: list[str]
    fixed: Group
    groups: list[Group]

    @property
    def anchored(self) -> bool:
        """Whether partition 0 has tensors already, so that no group has to be there."""
        return bool(self.fixed.tensors)

    @property
    def most_partitions(self) -> int:
        """How many partitions can have tensors of their own."""
        return len(self.groups) + self.anchored


def cut(tree: ModuleTree, opened: list[str], units: list[str]) -> Cut:
    """Group what belongs together."""
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
    """Unit → the number of its component by shared tensors, in order of the first; -1 with a fixed tensor."""
    of_tensor = dict.fromkeys(fixed, -1)
    parents = {-1: -1}

    def root(key: int) -> int:
        while parents[key] != key:
            key = parents[key]
        return key

    for number, name in enumerate(units):
        parents[number] = number
        for tensor in tree.tensors(name):
            first, second = sorted((root(of_tensor.setdefault(tensor, number)), root(number)))
            parents[second] = first
    return {name: root(number) for number, name in enumerate(units)}
