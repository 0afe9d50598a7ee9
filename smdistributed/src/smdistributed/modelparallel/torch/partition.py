"""Assigns modules to partitions: automatically by the memory of their parameters, or as the script says.

A plan maps modules to partitions. Modules that it does not name run on partition 0, with the user's step function.
Modules that share a tensor stay together.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from ..parameters import ModelParallelParameters
from .auto_partition import automatic
from .module_tree import ModuleTree
from .state import state
from .tags import tagged
from .ties import Cut, cut

_TAG = "_smp_partition"


class PartitionError(ValueError):
    """The model can't be split into the requested partitions."""


@contextmanager
def partition(index: int) -> Iterator[None]:
    """Put modules created in this context onto a partition, if auto_partition is false; the innermost context wins.

    ValueError for a partition that does not exist; RuntimeError before `init`.
    """
    _check(index)
    with tagged(_TAG, index):
        yield


def set_partition(module: nn.Module, index: int) -> None:
    """Put a module and its submodules onto a partition, if auto_partition is false.

    ValueError for a partition that does not exist; RuntimeError before `init`, and after the model was partitioned.
    """
    _check(index)
    if state.partitioned:
        raise RuntimeError("The model is partitioned already; call smp.set_partition before the first step.")
    for each in module.modules():
        each.__dict__[_TAG] = index


def _check(index: int) -> None:
    if not state.initialized:
        raise RuntimeError("The number of partitions is not known yet; call smp.init() first.")
    degree = state.parameters.pipeline_parallel_degree
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < degree:
        raise ValueError(f"No partition {index!r}; the model has {degree}, so choose from 0 to {degree - 1}.")


def plan(module: nn.Module, parameters: ModelParallelParameters) -> dict[str, int]:
    """Module name → partition, for modules not on partition 0; none of them contains another.

    A module that occurs several times in the tree has only one of its names here. PartitionError if the model can't be
    partitioned.
    """
    degree = parameters.pipeline_parallel_degree
    if degree == 1:
        return {}
    _refuse_torchscript(module)
    tree = ModuleTree(module)
    if not parameters.auto_partition:
        return _manual(tree, parameters.default_partition or 0, degree)
    try:
        best, partitions = automatic(tree, degree)
    except ValueError as error:
        raise PartitionError(
            f"{type(module).__name__} has no more than {error} modules with parameters of their own to put on {degree} "
            "partitions; choose fewer partitions."
        ) from None
    return _joined(tree, best, partitions)


def _refuse_torchscript(module: nn.Module) -> None:
    for name, each in module.named_modules():
        if isinstance(each, torch.jit.ScriptModule):
            raise PartitionError(
                f"{name or 'The model'} is TorchScript, which can't be cut into partitions; give the module itself, "
                "without torch.jit.script or torch.jit.trace, or take one partition."
            )


def _joined(tree: ModuleTree, best: Cut, partitions: dict[str, int]) -> dict[str, int]:
    """The plan of a cut. If all children of an opened module are on one partition, the module itself moves there."""
    partitions = dict(partitions)
    for name in reversed(best.opened):
        children = tree.children(name)
        indexes = {partitions.get(child, 0) for child in children}
        elsewhere = {key for unit in best.units if unit not in children for key in tree.tensors(unit)}
        if name and len(indexes) == 1 and not elsewhere & tree.own_tensors(name).keys():
            partitions = {each: index for each, index in partitions.items() if each not in children}
            partitions[name] = indexes.pop()
    return _named_once(tree, partitions)


def _named_once(tree: ModuleTree, partitions: dict[str, int]) -> dict[str, int]:
    """The plan without partition 0, and with one name per module, even if it occurs several times in the tree."""
    by_module = {id(tree.modules[name]): name for name in reversed(partitions)}
    return {name: index for name, index in partitions.items() if index and by_module[id(tree.modules[name])] == name}


def _manual(tree: ModuleTree, default: int, degree: int) -> dict[str, int]:
    """The plan of the script's contexts. A module whose submodules are on different partitions runs on partition 0."""
    opened, units = [""], []
    partitions: dict[str, int] = {}

    def tag(name: str) -> int:
        return int(tree.modules[name].__dict__.get(_TAG, default))

    def place(name: str) -> None:
        if not tree.can_open(name) or len({tag(each) for each in tree.called_below(name)}) == 1:
            units.append(name)
            partitions[name] = tag(name)
        else:
            opened.append(name)
            for child in tree.children(name):
                place(child)

    for child in tree.children("") if tree.can_open("") else ():
        place(child)
    chosen = cut(tree, opened, units)
    shared = [(group, partitions[group.names[0]]) for group in chosen.groups]
    for group, index in [(chosen.fixed, 0), *shared]:
        for name in group.names:
            if tree.tensors(name) and partitions[name] != index:
                warnings.warn(
                    f"smp: {name} moves to partition {index}, because it shares a tensor with a module there.",
                    stacklevel=2,
                )
                partitions[name] = index
    if missing := [index for index in range(1, degree) if index not in partitions.values()]:
        raise PartitionError(
            f"Partition {missing[0]} has no modules; put some there with smp.partition({missing[0]}) or "
            "smp.set_partition, or choose fewer partitions."
        )
    return _named_once(tree, partitions)


def owner(name: str, plan: Mapping[str, int]) -> int:
    """The partition of a module, parameter or buffer, by its name."""
    while name:
        if name in plan:
            return plan[name]
        name = name.rpartition(".")[0]
    return 0


def owners(module: nn.Module, plan: Mapping[str, int]) -> dict[str, int]:
    """The partition of every parameter and buffer, under each of its names."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    partitions: dict[int, int] = {}
    for name, tensor in named:  # a plan has one name per module, so under the others the owner seems to be 0
        partitions[id(tensor)] = max(owner(name, plan), partitions.get(id(tensor), 0))
    return {name: partitions[id(tensor)] for name, tensor in named}
