"""Requests made of the server's own description, right and wrong, and of nothing at all: what comes of them.

Usage: python -m bench.fuzz --model out/model.tar.gz [--requests 20000] > bench/results/DATE-fuzz.md

Schemathesis makes requests of /openapi.json, a half that it allows and a quarter that it does not, and Hypothesis a
quarter that are bytes. Every answer must be one that the description has for its path: no 500 or 502, a 503 or 504 with
its reason, in the time that a request may take. Ends with exit code 1 if one was not, or if less than a fifth was
answered with 200. All of it goes to 127.0.0.1. Wants what bench/serve.py does, without the peer.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi import checks

from bench import machine, program
from bench.serving import sides
from bench.serving.container import running
from bench.serving.our_image import SEED, add_options, our_sides
from berth.common import engine
from berth.serve.codecs import CODECS

RIGHT, WRONG, BYTES = "right", "wrong", "bytes"
SHARES = {RIGHT: 0.5, WRONG: 0.25, BYTES: 0.25}
SECONDS = 90.0
"""Within which every answer must come."""
_REASONS = {503: {"not_ready", "overloaded"}, 504: {"too_late"}}
_CHECKS = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
_SHOWN = 20
_TYPES = (*CODECS, "application/x-npy", "text/plain", "application/json; charset=utf-16", "*/*;q=x", "")


@dataclass
class FuzzFigures:
    """How many requests of each kind got which status, the slowest answer in seconds, and what was not in order."""

    statuses: dict[str, Counter[int]] = field(default_factory=lambda: {kind: Counter() for kind in SHARES})
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return sum(counted.total() for counted in self.statuses.values())

    @property
    def share_answered(self) -> float:
        """Of all requests those with 200."""
        return sum(counted[200] for counted in self.statuses.values()) / max(1, self.sent)

    def note(self, kind: str, status: int, seconds: float, fault: str) -> None:
        self.statuses[kind][status] += 1
        self.slowest = max(self.slowest, seconds)
        if fault:
            self.faults.append(fault)


def fuzz(url: str, count: int, number: int) -> FuzzFigures:
    """What comes of so many requests, the same for the same seed `number`."""
    figures = FuzzFigures()
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    [asking] = [each for each in operations if each.path == "/invocations"]
    with requests.Session() as session:
        session.trust_env = False
        for kind, mode in ((RIGHT, GenerationMode.POSITIVE), (WRONG, GenerationMode.NEGATIVE)):
            others = [each.as_strategy(GenerationMode.POSITIVE) for each in operations if each is not asking]
            # One in ten at the other paths, which take nothing.
            cases = st.one_of(*[asking.as_strategy(mode)] * 9, st.one_of(others))
            _each(cases, int(count * SHARES[kind]), number, lambda case, kind=kind: _call(case, session, figures, kind))
        raw = st.tuples(
            st.sampled_from(_TYPES), st.sampled_from(_TYPES), st.one_of(st.binary(), st.text().map(str.encode), _json())
        )
        _each(raw, int(count * SHARES[BYTES]), number, lambda drawn: _send(url, drawn, session, figures))
    return figures


def _each(strategy: Any, count: int, number: int, use: Callable[[Any], None]) -> None:
    """Draw so many values, and use each; none is drawn twice to make a fault smaller."""

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(value: Any) -> None:
        use(value)

    run()


def _json() -> Any:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    names = st.sampled_from(["inputs", "question", "context", "parameters", "top_k", "x"])
    values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=20)
    return values.map(lambda value: json.dumps(value).encode())


def _call(case: Case, session: requests.Session, figures: FuzzFigures, kind: str) -> None:
    began = time.monotonic()
    response = case.call(session=session, timeout=SECONDS)
    seconds = time.monotonic() - began
    fault = fault_of(response.status_code, response.content)
    try:
        case.validate_response(response, checks=_CHECKS)
    except (Failure, FailureGroup) as error:
        fault = fault or " ".join(str(error).split())[:400]
    shown = f"{fault}: {case.as_curl_command()[:400]}" if fault else ""
    figures.note(kind, response.status_code, seconds, shown)


def _send(url: str, drawn: tuple[str, str, bytes], session: requests.Session, figures: FuzzFigures) -> None:
    content_type, accept, body = drawn
    began = time.monotonic()
    headers = {"Content-Type": content_type, "Accept": accept}
    response = session.post(f"{url}/invocations", data=body, headers=headers, timeout=SECONDS)
    fault = fault_of(response.status_code, response.content)
    shown = f"{fault}: {headers} {body[:200]!r}" if fault else ""
    figures.note(BYTES, response.status_code, time.monotonic() - began, shown)


def fault_of(status: int, body: bytes) -> str:
    """What no answer may be, by its status; empty if it is in order."""
    if status < 400:
        return ""
    try:
        kind = json.loads(body)["error_type"]
    except (ValueError, KeyError, TypeError):
        return f"{status} without the one body of an error"
    if status >= 500 and kind not in _REASONS.get(status, set()):
        return f"{status} {kind}"
    return ""


def render(title: str, lines: Sequence[str], figures: FuzzFigures, memories: tuple[int, int]) -> str:
    """A page of the figures."""
    text = [f"# {title}", "", *lines, "", "| requests | sent | by status |", "|---|---:|---|"]
    for kind, counted in figures.statuses.items():
        said = ", ".join(f"{status}: {number}" for status, number in sorted(counted.items()))
        text.append(f"| {kind} | {counted.total()} | {said} |")
    before, after = (memory // 10**6 for memory in memories)
    text += [
        "",
        f"{figures.sent} requests, {figures.share_answered:.0%} of them answered with 200, the slowest after "
        f"{figures.slowest:.1f} s; not in order: {len(figures.faults)}. Memory {before} MB before, {after} MB after.",
    ]
    return "\n".join([*text, *(f"- {fault}" for fault in figures.faults[:_SHOWN])])


def main(words: Sequence[str]) -> int:
    options = _options(words)
    cores = machine.cores_of(options.cores)
    client = engine.connect()
    first = json.dumps({"question": "What is used?", "context": "This model is used with sagemaker."}).encode()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
        [side] = our_sides(options, [], Path(scratch))
        what = sides.describe(client, side)
        with running(client, side, cores, first) as server:
            fuzz(f"http://127.0.0.1:{server.port}", 500, SEED + 1)  # so that memory has been used once
            memory = server.memory()
            figures = fuzz(f"http://127.0.0.1:{server.port}", options.requests, SEED)
            memories = (memory, server.memory())
    setting = f"{program.setting('fuzz', words, client, cores)}."
    versions = f"schemathesis {schemathesis.__version__}"
    print(
        render(
            f"Requests of the server's own description, {time.strftime('%Y-%m-%d')}",
            [setting, f"{what}; {versions}"],
            figures,
            memories,
        )
    )
    return 1 if figures.faults or figures.share_answered < 0.2 else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = program.make_parser("fuzz", __doc__)
    add_options(parser)
    parser.set_defaults(requests=20_000)
    return parser.parse_args(words)


if __name__ == "__main__":
    program.end_with(main)
