"""Splits a model at the start: all ranks begin with one model, of which each keeps its shares."""

import sys

from torch import nn

from ..delayed import share_states
from ..gradients import broadcast_all
from ..groups import DP_GROUP, members, rank
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
        # The ranks may have used different seeds.
        for tensor in share_states((*module.parameters(), *module.buffers()), group):
            broadcast_all([tensor], group.ranks[0], group.control if tensor.device.type == "cpu" else group.tensors)
    state.exchanges = make_exchanges()
    distributed, whole = distribute(module)
    if whole and rank() == 0:
        lines = [f"smp: {name} is not split: {reason}" for name, reason in whole.items()]
        print("\n".join(lines), file=sys.stderr, flush=True)
    return distributed
