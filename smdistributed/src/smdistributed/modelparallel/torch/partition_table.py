"""The table of partitions, printed before the first step: parameters, memory and modules of each."""

import re
from collections.abc import Iterator, Mapping

from torch import nn

from .module_tree import Tensors, memory_of
from .partition import owner, owners

_MOST_CHARACTERS = 60


def table(module: nn.Module, plan: Mapping[str, int], degree: int) -> str:
    """The table: partition, number of parameters, estimated memory, modules.

    The memory is that of parameters, gradients and Adam's two moments, without activations. A parameter with several
    names counts once.
    """
    rows = [("partition", "parameters", "memory", "modules")]
    held: list[Tensors] = [{} for _ in range(degree)]
    places = owners(module, plan)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        held[places[name]][id(tensor)] = tensor
    names = _names(module, plan, places)
    for index, tensors in enumerate(held):
        count = sum(tensor.numel() for tensor in tensors.values() if isinstance(tensor, nn.Parameter))
        listed = ", ".join(ranges([name for name, place in names if place == index])) or "the step function only"
        shortened = listed if len(listed) <= _MOST_CHARACTERS else f"{listed[: _MOST_CHARACTERS - 1]}…"
        rows.append((str(index), f"{count:,}", _size(memory_of(tensors)), shortened))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*map(str.rjust, row[:3], widths), row[3]]) for row in rows]
    return "\n".join([*lines, "memory: parameters, gradients and Adam's moments, without activations"])


def _size(memory: float) -> str:
    return f"{memory / 2**20:,.1f} MiB" if memory >= 2**20 else f"{memory / 2**10:,.1f} KiB"


def _names(
    module: nn.Module, plan: Mapping[str, int], places: Mapping[str, int], name: str = ""
) -> list[tuple[str, int]]:
    """The largest modules that are on one partition, and the own parameters of opened modules, with their partition."""
    inside = [each for each in plan if each.startswith(f"{name}." if name else "")]
    if not inside:
        tensors = [*module.named_parameters(name), *module.named_buffers(name)]
        place = places[tensors[0][0]] if tensors else owner(name, plan)
        return [(name or type(module).__name__, place)] if tensors or name in plan else []
    below_children = []
    for child, below in module.named_children():
        below_children += _names(below, plan, places, f"{name}.{child}" if name else child)
    own = [each for each, _ in module.named_parameters(name, recurse=False)]
    return [*((each, 0) for each in own), *below_children]


def ranges(names: list[str]) -> Iterator[str]:
    """Merge names with consecutive numbers: layer.0, layer.1, layer.2 → layer.0-2."""
    at = 0
    while at < len(names):
        end = at
        first = re.fullmatch(r"(.*\D)?(\d+)", names[at])
        while first and end + 1 < len(names) and names[end + 1] == f"{first[1] or ''}{int(first[2]) + end + 1 - at}":
            end += 1
        yield names[at] if end == at or not first else f"{names[at]}-{int(first[2]) + end - at}"
        at = end + 1
