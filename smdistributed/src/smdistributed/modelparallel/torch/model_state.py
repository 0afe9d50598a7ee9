"""State dicts of a model that is spread over ranks, and helpers that its optimizer's state dicts use too."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from .delayed import computed
from .gathering import gathered
from .groups import WORLD, CommGroup, group_ranks, rdp_rank, tp_rank
from .shards import Rows, marked_rows, own_rows, rows_for
from .stand_in import is_remote_parameter
from .state import state
from .tensor.split import TensorSplit, split_of

Key = TypeVar("Key")
IS_PARTIAL = "_smp_is_partial"
"""The documented key that marks a state dict of one rank's part."""
_EXTRA_STATE = "_extra_state"  # torch's name for a module's state besides tensors


def entries(module: nn.Module) -> dict[str, Any]:
    """A module's state dict. It includes parameters of other ranks, which have no values here.

    A tensor with several names stays one object, so that it is sent and saved once.
    """
    values = module.state_dict(keep_vars=True)
    detached = {
        id(each): each if is_remote_parameter(each) else computed(each.detach())
        for each in values.values()
        if isinstance(each, torch.Tensor)
    }
    return {name: detached.get(id(each), each) for name, each in values.items()}


def whole(
    module: nn.Module, local: Mapping[str, Any], group: CommGroup, to: Sequence[int] | None
) -> "OrderedDict[str, Any]":
    """The entries of all ranks of the group on the CPU; empty on ranks that are not in `to` (default: all).

    local: the entries of this rank, with its shares of split parameters. RuntimeError if an entry is missing.
    """
    order = module.state_dict(keep_vars=True)
    splits = {name: split_of(each) for name, each in order.items()}
    own = {name: each for name, each in local.items() if contributes(group) and (tp_rank() == 0 or splits[name])}
    together = gathered_by_key(marked_rows(own), splits, "model.state_dict()", (group, to))
    if together is None:
        return OrderedDict()
    if missing := [name for name in order if name not in together]:
        raise RuntimeError(f"No rank holds {missing[0]}; this is an error of the model parallel library.")
    return OrderedDict((name, together[name]) for name in order)


def contributes(group: CommGroup) -> bool:
    """Whether this rank's part of the model is needed in a group; WORLD has several copies of it, one suffices."""
    return group is not WORLD or rdp_rank() < state.parameters.sharded_data_parallel_degree


def gathered_by_key(
    own: Mapping[Key, Any],
    splits: Mapping[Key, TensorSplit | None],
    what: str,
    where: tuple[CommGroup, Sequence[int] | None],
) -> dict[Key, Any] | None:
    """The entries of all ranks of a group on the CPU; None on ranks that do not get them.

    splits: of the parameter of each key; the shares of its tensors are put together. where: the group, and the places
    in it of the ranks that get the entries (None: all).
    """
    group, to = where
    parts = gathered(dict(own), group, what, to)
    if parts is None:
        return None
    ranks, coordinate = group_ranks(group), state.topology.coordinate
    by_share = sorted(
        range(len(ranks)), key=lambda place: (coordinate("T", ranks[place]), coordinate("D", ranks[place]))
    )
    together: dict[Key, Any] = {}
    made: dict[int, tuple[Any, Any]] = {}
    """By the id of the first share, which is kept so that its id stays its own: a tied tensor stays one object."""
    for key in dict.fromkeys(key for part in parts for key in part):
        shares = [parts[place].pop(key) for place in by_share if key in parts[place]]
        if splits[key] is None and len(shares) == 1:
            together[key] = shares[0]
            continue
        if id(shares[0]) not in made:
            made[id(shares[0])] = shares[0], merged(shares, splits[key])
        together[key] = made[id(shares[0])][1]
    return together


def merged(shares: Sequence[Any], split: TensorSplit | None) -> Any:
    """One value of the ranks' values: shares of a tensor are put together, also in a dict; others are the first's.

    Values are ordered by the tensor parallel rank, then by the rank in the sharding group.
    """
    first = shares[0]
    if isinstance(first, dict):
        return {name: merged([each[name] for each in shares], split) for name in first}
    if isinstance(first, Rows):
        degree = state.parameters.sharded_data_parallel_degree
        groups = [shares[begin : begin + degree] for begin in range(0, len(shares), degree)]
        return merged([torch.cat([rows.tensor for rows in group]) for group in groups], split)
    if split is None or not split.is_share(first):
        return first
    return split.whole(shares)


def own_share(value: Any, split: TensorSplit | None) -> Any:
    """This rank's share of a whole tensor, also in a dict; other values as they are."""
    if isinstance(value, dict):
        return {name: own_share(each, split) for name, each in value.items()}
    if split is None or not isinstance(value, torch.Tensor) or tuple(value.shape) != split.shape:
        return value
    return split.share(value, tp_rank())


def load(
    module: nn.Module, states: Mapping[str, Any], is_local: Callable[[str], bool], *, strict: bool
) -> "nn.modules.module._IncompatibleKeys":
    """Load this rank's entries. RuntimeError for wrong shapes and, if `strict`, for missing or unknown names."""
    own = module.state_dict(keep_vars=True)
    missing, unknown = [name for name in own if name not in states], [name for name in states if name not in own]
    tensors = {name: each for name, each in own.items() if name in states and not name.endswith(_EXTRA_STATE)}
    states = {name: own_share(each, split_of(own.get(name))) for name, each in states.items()}
    values = {name: rows_for(states[name], each) for name, each in tensors.items()}
    wrong = [
        f"{name} is {tuple(states[name].shape)}, not {tuple(each.shape)}"
        for name, each in tensors.items()
        if values[name].shape != own_rows(each).shape
    ]
    problems = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"unknown: {', '.join(unknown)}"] * bool(unknown)
    if wrong or (strict and problems):
        raise RuntimeError(
            f"The state dict does not fit {type(module).__name__} ({'; '.join(problems * strict + wrong)}): "
            "load a state dict of this model; a partial one needs the number of partitions that it was saved with."
        )
    with torch.no_grad():
        for name in own:
            if name in tensors and is_local(name):
                own_rows(tensors[name]).copy_(values[name])
            elif name in states and is_local(name):
                module.get_submodule(name.rpartition(".")[0]).set_extra_state(states[name])
    return nn.modules.module._IncompatibleKeys(missing, unknown)
