"""Splits a model at the start: all ranks begin with one model, of which each keeps its shares."""

import sys

from torch import nn

from ..gradients import broadcast_all
from ..groups import DP_GROUP, members, rank
from ..state import state
from .choice import distribute
from .exchange import make_exchanges


def distribute_equally(module: nn.Module) -> list[str]:
    """Split what the script marked, and return the names of these modules. Every rank calls it."""
    group = members(DP_GROUP)
    with state.watch.waiting("smp.DistributedModel()", group.ranks), state.watch.explain_errors(group.ranks):
        for tensor in (*module.parameters(), *module.buffers()):  # the ranks may have used different seeds
            broadcast_all([tensor], group.ranks[0], group.control if tensor.device.type == "cpu" else group.tensors)
    state.exchanges = make_exchanges()
    distributed, whole = distribute(module)
    if whole and rank() == 0:
        lines = [f"smp: {name} is not split: {reason}" for name, reason in whole.items()]
        print("\n".join(lines), file=sys.stderr, flush=True)
    return distributed
