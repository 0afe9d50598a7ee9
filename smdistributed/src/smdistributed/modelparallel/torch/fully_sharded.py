"""Sharded data parallelism: parameters, gradients and the optimizer's state are sharded over replicas.

torch's fully_shard does it: a layer's parameters are gathered before it runs and freed afterwards, and each rank gets
its rows of the mean of the gradients.

Source: Amazon SageMaker developer guide, "Sharded Data Parallelism".
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_leaves

from .delayed import settle_parameter
from .gradients import agree_on_call, begin_equally
from .groups import DP_GROUP, members, tp_size
from .shards import is_sharded
from .state import state
from .tensor.split import copy_split


def shard(root: nn.Module, device: torch.device) -> dict[int, nn.Parameter]:
    """Shard a model, whose ranks begin with the first one's parameters. Every rank calls it.

    Returns the sharded parameters by the ids of those that they replace. RuntimeError if torch can't shard.
    """
    try:
        from torch.distributed.fsdp import fully_shard  # takes more than a second, which other jobs need not spend
    except ImportError as error:
        raise RuntimeError(
            f"sharded_data_parallel_degree needs torch 2.6 or newer, and this is {torch.__version__}; set it to 1, or "
            "use a profile with a newer torch."
        ) from error
    _refuse_sparse_gradients(root)
    before = dict(root.named_parameters())
    group = members(DP_GROUP)
    with state.watch.waiting("smp.DistributedModel()", group.ranks), state.watch.explain_errors(group.ranks):
        if tp_size() == 1:  # otherwise it was done before the splits
            begin_equally(root, group)
        mesh = _mesh(device)
    names = {module: name for name, module in root.named_modules()}
    for module in (*_layers(root), root):
        whole = [each for each in module.parameters() if not is_sharded(each)]
        for parameter in whole:
            settle_parameter(parameter)
        fully_shard(module.to(device), mesh=mesh)
        _agree_on_calls(module, names[module] or "the model")
        for parameter in whole:  # kept, because an optimizer may have it, but not its memory
            parameter.data = parameter.new_empty(0)
    for module in root.modules():
        module.register_state_dict_pre_hook(_refuse_rows)  # type: ignore[no-untyped-call]
    after = dict(root.named_parameters())
    for name, old in before.items():
        copy_split(old, after[name])
    return {id(old): after[name] for name, old in before.items()}


def _agree_on_calls(module: nn.Module, name: str) -> None:
    """Let all ranks agree before each forward and each backward pass of a module that exchanges parameters in it.

    Ranks that run different layers would otherwise wait for each other forever.
    """

    def before_forward(*_: Any) -> None:
        agree_on_call(f"the forward pass of {name}")

    def after_forward(_: nn.Module, __: Any, output: Any) -> None:
        latest = -1  # backward pass, which calls the hook for each tensor of the output

        def before_backward(_: torch.Tensor) -> None:
            nonlocal latest
            current = torch._C._current_graph_task_id()
            if current != latest:
                latest = current
                agree_on_call(f"the backward pass of {name}")

        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(before_backward)  # type: ignore[no-untyped-call]

    module.register_forward_pre_hook(before_forward, prepend=True)  # before fully_shard's own
    module.register_forward_hook(after_forward, prepend=True)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """The tensors in a module's output, also in those of older versions of transformers."""
    for each in tree_leaves(output):
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, Mapping):
            yield from _tensors(list(each.values()))


def _refuse_rows(module: nn.Module, prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
    """RuntimeError if a script asks the module itself for its state; the library asks with `keep_vars`."""
    if not keep_vars and any(map(is_sharded, module.parameters())):
        raise RuntimeError(
            "The module has only this rank's rows of the parameters that sharded_data_parallel_degree shards; call "
            "state_dict() of smp.DistributedModel, on every rank."
        )


def _mesh(device: torch.device) -> DeviceMesh:
    """The replicas of this tensor parallel rank: groups with equal shards, each of ranks that share one copy."""
    topology, degree = state.topology, state.parameters.sharded_data_parallel_degree
    place = {
        (topology.coordinate("T", rank), topology.coordinate("D", rank)): rank for rank in range(topology.world_size)
    }
    ranks = torch.tensor([place[tensor, replica] for tensor in range(topology.tp) for replica in range(topology.rdp)])
    shape = (topology.tp, topology.rdp // degree, degree)
    whole = DeviceMesh(device.type, ranks.reshape(shape), mesh_dim_names=("tensor", "replicate", "shard"))
    return whole["shard"] if topology.rdp == degree else whole["replicate", "shard"]


def _layers(root: nn.Module) -> Iterator[nn.Module]:
    """The outermost members of module lists that share no parameter with the rest of the model."""
    users, seen = _uses(root), set[int]()
    lists = (each for each in root.modules() if isinstance(each, nn.ModuleList | nn.Sequential))
    for layer in (child for each in lists for child in each):
        if id(layer) in seen:
            continue
        inside = _uses(layer)
        if inside and all(users[key] == count for key, count in inside.items()):
            seen.update(id(each) for each in layer.modules())
            yield layer


def _uses(root: nn.Module) -> Counter[int]:
    """How many modules hold each parameter, by its id."""
    return Counter(id(each) for module in root.modules() for each in module.parameters(recurse=False))


def _refuse_sparse_gradients(root: nn.Module) -> None:
    for name, module in root.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise ValueError(
                f"{name} has sparse gradients, which can't be sharded; create it with sparse=False, or set "
                "sharded_data_parallel_degree to 1."
            )
