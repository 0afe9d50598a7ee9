"""Divides a training step's time into categories, from the events of torch's profiler. Pure: events in, seconds out.

Every moment of a step counts once: as compute if the device computes, else as communication if ranks exchange data,
else as data if the loop waits for its batch, else as other (Python between operators). So communication that overlaps
with compute does not count, and waiting for a slower rank is communication.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CATEGORIES = ("compute", "communication", "data", "other")
DATA_MARK = "wait for data"
STEP_MARK = "step "
"""The names of trace.py's marks; a step's mark ends with its number."""

Event = Mapping[str, Any]
Spans = list[tuple[float, float]]
"""Starts and ends, sorted and without overlap."""

_BLOCKING = ("c10d::", "_c10d_functional::", "record_param_comms")
"""Operators in which the caller of a collective waits; gloo's work in its own threads is named `gloo:…`."""


def times_of(events: Sequence[Event]) -> dict[str, float]:
    """Seconds by category over all marked steps of a Chrome trace; `ts` and `dur` of its events are µs."""
    spans = {kind: _union(each) for kind, each in _sorted_by_kind(events).items()}
    compute, communication, data = spans["kernel"], spans["exchange"], spans["data"]
    if not compute:  # on a CPU: all operators, except those that prepare a batch or wait for other ranks
        compute = _without(_without(spans["operator"], data), spans["blocking"])
        communication = _union([*communication, *spans["blocking"]])
    seconds = {}
    left = spans["step"]
    for name, each in zip(CATEGORIES, (compute, communication, data, left), strict=True):
        rest = _without(left, each)
        seconds[name] = (_length(left) - _length(rest)) / 1e6
        left = rest
    return seconds


def percentages(seconds: Mapping[str, float]) -> dict[str, int]:
    """Each category's share of the sum, in whole percent."""
    total = sum(seconds.values()) or 1.0
    return {name: round(100 * each / total) for name, each in seconds.items()}


def _sorted_by_kind(events: Sequence[Event]) -> dict[str, list[tuple[float, float]]]:
    spans: dict[str, list[tuple[float, float]]] = {
        kind: [] for kind in ("step", "data", "operator", "blocking", "exchange", "kernel")
    }
    for each in events:
        if kind := _kind(each):
            start = float(each["ts"])
            spans[kind].append((start, start + float(each["dur"])))
    return spans


def _kind(event: Event) -> str:
    """The kind of an event; empty if it does not count."""
    if event.get("ph") != "X":
        return ""
    name, category = str(event["name"]), event.get("cat")
    if category == "kernel":
        return "exchange" if "nccl" in name.lower() else "kernel"
    if category in ("gpu_memcpy", "gpu_memset"):
        return "kernel"
    if category == "cpu_op":
        return "blocking" if name.startswith(_BLOCKING) else "operator"
    if category == "user_annotation":
        if name.startswith("gloo:"):
            return "exchange"
        if name.removeprefix(STEP_MARK).isdecimal():
            return "step"
        return "data" if name == DATA_MARK else ""
    return ""


def _union(spans: Iterable[tuple[float, float]]) -> Spans:
    joined: Spans = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _without(spans: Spans, taken: Spans) -> Spans:
    """The parts of `spans` that are not in `taken`."""
    left: Spans = []
    position = 0
    for first, end in spans:
        start = first
        while position < len(taken) and taken[position][1] <= start:
            position += 1
        ahead = position
        while ahead < len(taken) and taken[ahead][0] < end:
            if taken[ahead][0] > start:
                left.append((start, taken[ahead][0]))
            start = max(start, taken[ahead][1])
            ahead += 1
        if start < end:
            left.append((start, end))
    return left


def _length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)
