"""A state machine: random loads, requests, unloads, kills and stops against a real multi-model server.

It compares the server with the expected state of each model's name. Each name has a folder per kind of model. A
`gated` model waits for files during its load and its requests, so the state machine decides how long they take.
"""

import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar

import httpx
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.serve.models.kinds import LOADABLE, NAMES, REFUSED
from tests.unit.serve.models.live_server import LiveServer
from tests.waiting import until

QUESTION = {"question": "What is used?", "context": "This model is used with sagemaker for inference."}
Response = httpx.Response


class NameState(Enum):
    """The expected state of a model's name."""

    ABSENT = 0
    LOADING = 1
    READY = 2
    UNLOADING = 3


@dataclass
class Name:
    """A name with its expected state and its unanswered requests."""

    state: NameState = NameState.ABSENT
    kind: str = ""
    requests: "list[tuple[Future[Response], Path]]" = field(default_factory=list)
    """Invocations in progress, each with the file that it waits for."""
    load: "Future[Response] | None" = None
    loads: "list[tuple[Future[Response], str]]" = field(default_factory=list)
    """Loads that wait for the end of an unload, each with its kind."""
    unloads: "list[Future[Response]]" = field(default_factory=list)


class Session:
    """Runs examples, `examples_each` per server, and keeps figures of all of them."""

    def __init__(self, base: Path, examples_each: int) -> None:
        self.base = base
        self.examples_each = examples_each
        self.examples = self.servers = self.steps = 0
        self.counts: dict[str, int] = {}
        self.memory: list[list[int]] = []
        """Bytes of each server after each example."""
        self.server: LiveServer | None = None
        self.failure: BaseException | None = None

    def run(self, examples: int, steps: int, *, same: bool) -> None:
        """Run `examples` examples of at most `steps` steps, and raise the first failure. `same`: use a fixed seed."""
        machine = type("Machine", (ModelsMachine,), {"session": self})
        options = settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=same,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        try:
            run_state_machine_as_test(machine, settings=options)
        except BaseException as error:
            raise self.failure or error from None
        finally:
            self.close()

    def begin(self) -> LiveServer:
        if self.server is None:
            self.server = LiveServer(self.base)
            self.servers += 1
            self.memory.append([])
        return self.server

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server = None


def keep_failure(step: "Callable[..., None]") -> "Callable[..., None]":
    """Keep the first failure: Hypothesis repeats the steps and may report another failure that follows from it."""

    @wraps(step)
    def run(machine: "ModelsMachine", *values: Any, **named: Any) -> None:
        try:
            step(machine, *values, **named)
        except BaseException as error:
            machine.session.failure = machine.session.failure or error
            raise

    return run


def names_where(condition: "Callable[[Name], bool]") -> tuple[Any, Any]:
    """A rule's strategy for the names that meet the condition, and the precondition that there is one."""

    def matching_names(machine: "ModelsMachine") -> list[str]:
        return [name for name, it in machine.names.items() if condition(it)]

    return st.runner().flatmap(lambda machine: st.sampled_from(matching_names(machine))), precondition(
        lambda it: bool(matching_names(it))
    )


ANY = st.sampled_from(NAMES)
ABSENT, if_absent = names_where(lambda it: it.state is NameState.ABSENT)
LOADING, if_loading = names_where(lambda it: it.load is not None)
INVOKED, if_invoked = names_where(lambda it: bool(it.requests))
IDLE, if_idle = names_where(lambda it: it.state in (NameState.LOADING, NameState.READY) and not it.requests)


class ModelsMachine(RuleBasedStateMachine):
    """The random steps, and the checks after each. `session` is set in a subclass."""

    session: ClassVar[Session]

    def __init__(self) -> None:
        super().__init__()
        self.server = self.session.begin()
        self.names = {name: Name() for name in NAMES}
        self.threads = ThreadPoolExecutor(64)
        self.gates = 0
        self.counters: dict[str, float] = {}

    # Steps

    @rule(name=ANY, kind=st.sampled_from((*LOADABLE, *LOADABLE, "gated", "gated", *REFUSED)))
    @keep_failure
    def load(self, name: str, kind: str) -> None:
        it = self.names[name]
        if it.state is NameState.UNLOADING:
            if kind in LOADABLE:
                it.loads.append((self._submit("POST", "/models", self._body(name, kind)), kind))
            return
        if it.state is not NameState.ABSENT:
            self._expect(409, "POST", "/models", self._body(name, kind))
            return
        self._expect(REFUSED.get(kind, 200), "POST", "/models", self._body(name, kind))
        if kind in LOADABLE:
            it.state, it.kind = NameState.READY, kind

    @if_absent
    @rule(name=ABSENT)
    @keep_failure
    def load_slowly(self, name: str) -> None:
        it = self.names[name]
        self._file(name, "hold").touch()
        it.load = self._submit("POST", "/models", self._body(name, "gated"))
        it.state, it.kind = NameState.LOADING, "gated"
        until(lambda: f"{name}-gated" in self.server.workers(), "a load")

    @if_loading
    @rule(name=LOADING)
    @keep_failure
    def finish_load(self, name: str) -> None:
        it = self.names[name]
        assert it.load is not None
        self._file(name, "hold").unlink()
        self._check_status(it.load, 200)
        it.state, it.load = NameState.READY, None

    @rule(name=ANY, count=st.integers(1, 3))
    @keep_failure
    def invoke(self, name: str, count: int) -> None:
        it = self.names[name]
        if it.state is NameState.READY and it.kind == "gated":
            for _ in range(count):
                self.gates += 1
                gate = self.session.base / f"gate-{self.session.examples}-{self.gates}"
                it.requests.append((self._submit("POST", f"/models/{name}/invoke", str(gate)), gate))
            until(lambda: self.server.metrics()["berth_active_requests"] == self._in_flight(), "requests")
        elif it.state is NameState.READY:
            self._check_answer(name)
        else:
            expected = 503 if it.state is NameState.LOADING else 404
            self._expect(expected, "POST", f"/models/{name}/invoke", QUESTION)

    @if_invoked
    @rule(name=INVOKED)
    @keep_failure
    def finish_requests(self, name: str) -> None:
        it = self.names[name]
        for _, gate in it.requests:
            gate.touch()
        for answer, gate in it.requests:
            assert self._check_status(answer, 200).json() == f"{name}-gated"
            gate.unlink()
        it.requests.clear()
        if it.state is NameState.UNLOADING:
            self._finish_unload(name)

    @rule(name=ANY)
    @keep_failure
    def unload(self, name: str) -> None:
        it = self.names[name]
        if it.state is NameState.ABSENT:
            self._expect(404, "DELETE", f"/models/{name}")
        elif it.requests:
            it.unloads.append(self._submit("DELETE", f"/models/{name}"))
            it.state = NameState.UNLOADING
            until(lambda: self._status("GET", f"/models/{name}") == 404, "an unload")
        else:
            self._expect(200, "DELETE", f"/models/{name}")
            if it.load is not None:
                self._check_status(it.load, 503)
                self._file(name, "hold").unlink()
            self.names[name] = Name()

    @if_idle
    @rule(name=IDLE, for_good=st.booleans())
    @keep_failure
    def kill(self, name: str, for_good: bool) -> None:
        """Kill the worker. `for_good`: its replacement fails to load the model."""
        it = self.names[name]
        folder = f"{name}-{it.kind}"
        until(lambda: folder in self.server.workers(), "a worker")
        worker = self.server.workers()[folder]
        fails = for_good and it.kind == "gated" and it.state is NameState.READY
        if fails:
            self._file(name, "broken").touch()
        os.kill(worker, signal.SIGKILL)
        self._count("kill")
        if fails:
            until(lambda: self._status("GET", f"/models/{name}") == 404, "the end of a model without a worker")
            until(lambda: len(self.server.scratch()) < len(self._folders_with_worker()), "the end of its folder")
            self._file(name, "broken").unlink()
            self.names[name] = Name()
            self._count("kill for good")
        elif it.load is not None:
            self._check_status(it.load, 507)  # as if the kernel had killed it for memory
            self._file(name, "hold").unlink()
            self.names[name] = Name()
        else:
            # A handler's request is not repeated, so the next one is sent only once another worker runs.
            until(lambda: self.server.workers().get(folder, worker) != worker, "another worker")
            self.invoke(name, 1)

    # What holds after each step

    @invariant()
    @keep_failure
    def server_is_as_expected(self) -> None:
        """The list has the loaded models, counters never decrease, and nothing of an unloaded model is left."""
        self.session.steps += 1
        ready = {name: it for name, it in self.names.items() if it.state is NameState.READY}
        listed = self.server.ask("GET", "/models").json()["models"]
        assert {each["modelName"]: each["modelUrl"] for each in listed} == {
            name: self._body(name, it.kind)["url"] for name, it in ready.items()
        }
        assert self.server.ask("GET", "/ping").json() == {"status": "ready", "models": len(ready)}
        figures = self.server.metrics()
        assert figures["berth_active_requests"] == self._in_flight()
        counters = {name: value for name, value in figures.items() if name.partition("{")[0].endswith("_total")}
        fallen = {name: value for name, value in self.counters.items() if counters.get(name, 0.0) < value}
        assert fallen == {}
        self.counters = counters
        assert set(self.server.workers()) == self._folders_with_worker()
        assert len(self.server.scratch()) == len(self._folders_with_worker())

    @keep_failure
    def teardown(self) -> None:
        """End the example, and the server if it has lasted long enough."""
        self.session.examples += 1
        try:
            if self.session.examples % self.session.examples_each == 0:
                self._stop()
            else:
                self._settle()
        except BaseException:
            self.session.close()
            raise
        finally:
            self.threads.shutdown()

    def _stop(self) -> None:
        """Send SIGTERM while requests are in progress: they are answered, and the server exits with code 0."""
        self.server.terminate()
        self._count("SIGTERM")
        pending = [request for it in self.names.values() for request in it.requests]
        self._count("requests at SIGTERM", len(pending))
        for _, gate in pending:
            gate.touch()
        for answer, gate in pending:
            self._check_status(answer, 200)
            gate.unlink()
        for name, it in self.names.items():
            self._file(name, "hold").unlink(missing_ok=True)
            for unload in it.unloads:
                self._check_status(unload, 200, 503)
            for load in [*(load for load, _ in it.loads), *([it.load] if it.load else [])]:
                self._check_status(load, 200, 503)
        code, lines = self.server.end()
        assert code == 0, lines[-30:]
        assert self.server.workers() == {}
        assert list(self.server.tmp.iterdir()) == []
        self.session.close()

    def _settle(self) -> None:
        for name in NAMES:
            self.finish_requests(name)
            self.unload(name)
        self.server_is_as_expected()
        self.session.memory[-1].append(self.server.memory())

    # Helpers

    def _finish_unload(self, name: str) -> None:
        it = self.names[name]
        for unload in it.unloads:
            self._check_status(unload, 200)
        loads = [(self._check_status(load, 200, 409).status_code, kind) for load, kind in it.loads]
        assert sorted(status for status, _ in loads) == ([200] + [409] * (len(loads) - 1) if loads else []), loads
        loaded = [kind for status, kind in loads if status == 200]
        self.names[name] = Name(NameState.READY, loaded[0]) if loaded else Name()

    def _check_answer(self, name: str) -> None:
        kind = self.names[name].kind
        answer = self._expect(200, "POST", f"/models/{name}/invoke", QUESTION).json()
        if kind == "echo":
            assert answer == [QUESTION, self._body(name, kind)["url"]]
        else:
            assert answer["answer"] == QUESTION["context"][answer["start"] : answer["end"]]

    def _expect(self, status: int, method: str, path: str, value: Any = None) -> Response:
        answer = self.server.ask(method, path, value)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        self._count(f"{method} {_without_name(path)} {status}")
        return answer

    def _check_status(self, future: "Future[Response]", *statuses: int) -> Response:
        answer = future.result()
        assert answer.status_code in statuses, f"{answer.request.method} {answer.url}: {answer.text}"
        self._count(f"{answer.request.method} {_without_name(answer.url.path)} {answer.status_code}, waited for")
        return answer

    def _submit(self, method: str, path: str, value: Any = None) -> "Future[Response]":
        return self.threads.submit(self.server.ask, method, path, value)

    def _status(self, method: str, path: str, value: Any = None) -> int:
        return self.server.ask(method, path, value).status_code

    def _body(self, name: str, kind: str) -> dict[str, str]:
        return {"model_name": name, "url": str(self.session.base / f"models/{name}-{kind}")}

    def _file(self, name: str, file: str) -> Path:
        return self.session.base / f"models/{name}-gated" / file

    def _in_flight(self) -> int:
        return sum(len(it.requests) for it in self.names.values())

    def _folders_with_worker(self) -> set[str]:
        return {f"{name}-{it.kind}" for name, it in self.names.items() if it.state is not NameState.ABSENT}

    def _count(self, what: str, times: int = 1) -> None:
        self.session.counts[what] = self.session.counts.get(what, 0) + times


def _without_name(path: str) -> str:
    return re.sub(r"(?<=/models/)[^/]+", "NAME", path)
