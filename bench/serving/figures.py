"""What a load comes to: rates, percentiles, outcomes, and how many answers are the same."""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.serving.load import LOST, Load

_OK, _REFUSED, _TIMED_OUT = 200, 503, 504


@dataclass(frozen=True, slots=True)
class ClosedFigures:
    """A closed loop. per_second: requests answered; p50_ms, p99_ms: of these; failed: all others; client_share: what
    the client took of one core.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int
    client_share: float


@dataclass(frozen=True, slots=True)
class SoakFigures:
    """An open loop above capacity. per_second: requests answered; pings_failed: those that were not 200; late_p99_ms:
    from when a request was due to when the client sent it.
    """

    sent: int
    answered: int
    refused: int
    timed_out: int
    lost: int
    others: int
    per_second: float
    p50_ms: float
    p99_ms: float
    ping_p99_ms: float
    pings: int
    pings_failed: int
    late_p99_ms: float
    client_share: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many of `asked` requests two servers answered with the same span, and with the same text."""

    asked: int
    spans: int
    texts: int


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of them does not exceed (nearest rank); NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def closed_figures(load: Load) -> ClosedFigures:
    taken = [1000 * reply.seconds for reply in load.replies if reply.status == _OK]
    return ClosedFigures(
        per_second=len(taken) / load.seconds,
        p50_ms=percentile(taken, 0.5),
        p99_ms=percentile(taken, 0.99),
        failed=len(load.replies) - len(taken),
        client_share=load.cpu_seconds / load.seconds,
    )


def soak_figures(load: Load, pings: Load) -> SoakFigures:
    """Of an open loop, and of the /ping asked during it."""
    taken = [1000 * reply.seconds for reply in load.replies if reply.status == _OK]
    count = Counter(reply.status for reply in load.replies)
    return SoakFigures(
        sent=len(load.replies),
        answered=len(taken),
        refused=count[_REFUSED],
        timed_out=count[_TIMED_OUT],
        lost=count[LOST],
        others=sum(number for status, number in count.items() if status not in (_OK, _REFUSED, _TIMED_OUT, LOST)),
        per_second=len(taken) / load.seconds,
        p50_ms=percentile(taken, 0.5),
        p99_ms=percentile(taken, 0.99),
        ping_p99_ms=percentile([1000 * reply.seconds for reply in pings.replies], 0.99),
        pings=len(pings.replies),
        pings_failed=sum(reply.status != _OK for reply in pings.replies),
        late_p99_ms=percentile([1000 * reply.late for reply in load.replies], 0.99),
        client_share=load.cpu_seconds / load.seconds,
    )


def agreement(ours: Load, others: Load) -> Agreement:
    """Of the same requests, in the same order; one that either has not answered counts as different."""
    pairs = [
        (_answer(mine.body), _answer(other.body))
        for mine, other in zip(ours.replies, others.replies, strict=True)
        if mine.status == other.status == _OK
    ]

    def same(part: Callable[[Any], Any]) -> int:
        return sum(part(mine) == part(other) for mine, other in pairs)

    return Agreement(
        len(ours.replies), same(lambda each: (each["start"], each["end"])), same(lambda each: each["answer"])
    )


def _answer(body: bytes) -> Any:
    """The best answer; some servers give a list of one."""
    found = json.loads(body)
    return found[0] if isinstance(found, list) else found
