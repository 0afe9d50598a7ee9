"""Divides a training step's time into categories, from the events of torch's profiler. Pure: events in, seconds out.

Every moment of a step counts once: as compute if the device computes, else as communication if ranks exchange data,
else as data if the loop waits for its batch, else as other (Python between operators). So communication that overlaps
with compute does not count, and waiting for a slower rank is communication.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

CATEGORIES = ("compute", "communication", "data", "other")
DATA_MARK = "wait for data"
STEP_MARK = "step "
"""The names of trace.py's marks; a step's mark ends with its number."""

Event = Mapping[str, Any]

_BLOCKING = ("c10d::", "_c10d_functional::", "record_param_comms")
"""Operators in which the caller of a collective waits; gloo's work in its own threads is named `gloo:…`."""


def times_of(events: Iterable[Event]) -> dict[str, float]:
    """Seconds by category over all marked steps of a Chrome trace; `ts` and `dur` of its events are µs."""
    edges = []
    for event in events:
        if kind := _kind(event):
            start = float(event["ts"])
            edges += [(start, kind, 1), (start + float(event["dur"]), kind, -1)]
    on_gpu = any(kind == "kernel" for _, kind, _ in edges)
    seconds = dict.fromkeys(CATEGORIES, 0.0)
    active: Counter[str] = Counter()  # events that run between two edges, by kind
    before = 0.0
    for now, kind, change in sorted(edges):
        if active["step"]:
            seconds[_category(active, on_gpu=on_gpu)] += (now - before) / 1e6
        active[kind] += change
        before = now
    return seconds


def _category(active: Counter[str], *, on_gpu: bool) -> str:
    """On a CPU all operators compute, except those that prepare a batch or wait for other ranks."""
    waits = active["blocking"] and not on_gpu
    if active["kernel"] if on_gpu else active["operator"] and not active["data"] and not waits:
        return "compute"
    if active["exchange"] or waits:
        return "communication"
    return "data" if active["data"] else "other"


def _kind(event: Event) -> str:
    """The kind of an event; empty if it does not count."""
    if event.get("ph") != "X":
        return ""
    name, category = str(event["name"]), event.get("cat")
    if category == "user_annotation":
        if name.startswith("gloo:"):
            return "exchange"
        if name == DATA_MARK:
            return "data"
        return "step" if name.removeprefix(STEP_MARK).isdecimal() else ""
    if category == "cpu_op":
        return "blocking" if name.startswith(_BLOCKING) else "operator"
    if category == "kernel" and "nccl" in name.lower():
        return "exchange"
    return "kernel" if category in ("kernel", "gpu_memcpy", "gpu_memset") else ""
