"""Figures of a load: rates, percentiles, outcomes, and how many answers are equal."""

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
    """Figures of a closed loop. per_second: answered requests; p50_ms, p99_ms: their times; failed: all other requests;
    client_share: the client's share of one core.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int
    client_share: float


@dataclass(frozen=True, slots=True)
class SoakFigures:
    """Figures of an open loop above capacity. per_second: answered requests; pings_failed: answers other than 200;
    late_p99_ms: the delay with which the client sent a request.
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
    """How many of `requests` two servers answered with the same span, and with the same text."""

    requests: int
    spans: int
    texts: int


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that at least `share` of the values do not exceed. NaN without
    values.
    """
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
    """The figures of an open loop and of the /ping requests sent during it."""
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
    """Compare the answers to the same requests in the same order; a request that failed on a side is different."""
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
    """The best answer; some servers return a list with one answer."""
    answers = json.loads(body)
    return answers[0] if isinstance(answers, list) else answers
