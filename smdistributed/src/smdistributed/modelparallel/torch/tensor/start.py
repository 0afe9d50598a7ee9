"""Splits a model at the start: all ranks begin with one model, of which each keeps its shares."""

import re
import sys
from collections.abc import Mapping, Sequence

from torch import nn

from ..gradients import begin_equally
from ..groups import DP_GROUP, members, rank, tp_size
from ..state import state
from .choice import distribute, is_marked
from .exchange import make_exchanges


def give_names(root: nn.Module) -> None:
    """Give a marked model of transformers the names by which published scripts find the layers of AWS's models.

    `transformer.seq_layers`, and `attention` and `output` of each layer.
    """
    if not any(map(is_marked, root.modules())):
        return
    base = getattr(root, getattr(root, "base_model_prefix", "") or "-", root)
    layers = next((each for each in base.children() if isinstance(each, nn.ModuleList)), None)
    if layers is None:
        return
    base.__dict__["seq_layers"] = layers
    if not hasattr(root, "transformer"):
        root.__dict__["transformer"] = base
    for layer in layers:
        for name, own in (("attention", "attn"), ("output", "mlp")):
            if not hasattr(layer, name) and hasattr(layer, own):
                layer.__dict__[name] = getattr(layer, own)


def distribute_equally(module: nn.Module) -> list[str]:
    """Split what the script marked, and return the names of these modules. Every rank calls it."""
    group = members(DP_GROUP)
    with state.watch.waiting("smp.DistributedModel()", group.ranks), state.watch.explain_errors(group.ranks):
        begin_equally(module, group)
    state.exchanges = make_exchanges()
    distributed, whole = distribute(module)
    if rank() == 0:
        print("\n".join(lines_about(distributed, whole, tp_size())), file=sys.stderr, flush=True)
    return distributed


def lines_about(split: Sequence[str], whole: Mapping[str, str], degree: int) -> list[str]:
    """What to print about the modules that are split and those that stay whole; pure. whole: name → reason.

    Layers of one list with the same reason share a line.
    """
    if not split and not whole:
        return [
            f"smp: tensor_parallel_degree is {degree}, but the script marks no module, so every rank has all "
            "parameters; create the model in `with smp.tensor_parallelism():`"
        ]
    alike: dict[tuple[str, str], list[str]] = {}
    for name, reason in whole.items():
        alike.setdefault((re.sub(r"\d+", "N", name), reason), []).append(name)
    return [
        *([f"smp: {_and_more(split, 'modules')} split over {degree} ranks"] if split else []),
        *(f"smp: {_and_more(names, 'like it')} not split: {reason}" for (_, reason), names in alike.items()),
    ]


def _and_more(names: Sequence[str], what: str) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more {what} are"
