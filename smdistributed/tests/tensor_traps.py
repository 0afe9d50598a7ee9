"""Runs in each rank of a launch: trainings that go wrong if the library lacks the cure of a trap.

A case is a function that describes what is wrong, "" if nothing is. TRAPS has the cases, each with a context in which
the library lacks the cure.
"""

import contextlib

import traps_exchanges
import traps_layers

TRAPS = {
    "masks": (traps_layers.padding_on_one_rank, traps_layers.regions_per_layer),
    "local sizes": (traps_layers.partitions_differ, traps_layers.local_sizes),
    "uneven heads": (traps_layers.uneven_heads, traps_layers.local_sizes),
    "views": (traps_layers.stays_alive, traps_layers.returns_a_view),
    "remote output": (traps_layers.output_elsewhere, traps_layers.regions_use_shells),
    "remote input": (traps_layers.alternating_layers, traps_layers.matrices_use_shells),
    "streams": (traps_layers.losses_differ, traps_layers.one_stream_below),
    "late comparison": (traps_exchanges.updates_with_crossed_microbatches, traps_exchanges.compares_after_the_update),
    "broadcast of shares": (traps_exchanges.even_heads, traps_exchanges.broadcast_after_the_split),
    "repeated averages": (traps_exchanges.averages_twice, traps_exchanges.scales_in_the_exchange),
    "comparisons among sums": (traps_exchanges.branches, traps_exchanges.compares_in_the_layers_group),
    "failures counted twice": (traps_exchanges.ranks_count_differently, traps_exchanges.counts_twice),
    "names": (traps_layers.lacks_names, traps_layers.no_names),
    "emptied state": (traps_exchanges.saves_less, traps_exchanges.same_dict_each_time),
    "Adam": (traps_exchanges.adam_differs, traps_exchanges.compares_all),
    "cut layer": (traps_layers.cuts_into_a_layer, traps_layers.layers_open),
}


def outcome(name, *, cured):
    """What is wrong with the library as it is (cured), or without the cure."""
    case, without = TRAPS[name]
    with contextlib.nullcontext() if cured else without():
        return case()


def outcomes(names):
    """Name → what is wrong with and without the cure. For traps that end no process and fail no step."""
    return {name: [outcome(name, cured=cured) for cured in (True, False)] for name in names}
