"""Models that are unloaded while they are loaded, invoked or loaded again, or because their worker can't restart."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.serve.in_process import ONE, error_of
from tests.unit.serve.models.endpoint import Endpoint, add_model
from tests.waiting import until

pytestmark = pytest.mark.slow

WAITS = """
import time
from pathlib import Path

def wait_for(path):
    while not path.exists():
        time.sleep(0.01)

def model_fn(model_dir):
    folder = Path(model_dir)
    (folder / "loading").touch()
    wait_for(folder / "may_load")
    if (folder / "broken").exists():
        raise RuntimeError("broken")
    return folder

def predict_fn(data, folder):
    (folder / "invoked").touch()
    wait_for(folder / "may_answer")
    return data
"""
Run = Callable[..., "Future[Any]"]


@pytest.fixture
def run() -> Iterator[Run]:
    with ThreadPoolExecutor() as threads:
        yield threads.submit


@pytest.fixture
def folder(endpoint: Endpoint) -> Path:
    """A model that is loaded once the file `may_load` exists, and answers once `may_answer` exists."""
    return add_model(endpoint, "waits", inference_py=WAITS)


def ask(endpoint: Endpoint, name: str, value: Any = 1) -> Any:
    return endpoint.client.post(f"/models/{name}/invoke", json=value)


def unload_during_a_request(endpoint: Endpoint, folder: Path, run: Run) -> "tuple[Future[Any], Future[Any]]":
    """Load the model as a, and unload it while it computes; returns the request [1] and the unload, which wait."""
    (folder / "may_load").touch()
    assert endpoint.load("a", folder).status_code == 200
    pending = run(ask, endpoint, "a", [1])
    until((folder / "invoked").exists)
    unload = run(endpoint.client.delete, "/models/a")
    until(lambda: endpoint.names() == [])
    return pending, unload


def test_load_during_an_unload_of_the_same_name_waits(endpoint: Endpoint, folder: Path, run: Run) -> None:
    """Accepted requests are answered and counted first; the new load waits, and its files are kept."""
    client, models = endpoint.client, endpoint.models
    pending, unload = unload_during_a_request(endpoint, folder, run)
    unloads = [unload, run(client.delete, "/models/a")]
    assert [error_of(found)[0] for found in (ask(endpoint, "a"), client.get("/models/a"))] == [404, 404]
    loaded = run(endpoint.load, "a", folder)
    assert endpoint.load("b", folder).status_code == 200  # others do not wait
    assert models.active == 1, "a stop must wait for the request"
    assert not any(future.done() for future in (pending, loaded, *unloads))

    (folder / "may_answer").touch()
    assert pending.result().json() == [1]
    assert [unload.result().status_code for unload in unloads] == [200, 200]
    assert loaded.result().status_code == 200
    assert ask(endpoint, "a", [2]).json() == [2]
    assert endpoint.names() == ["a", "b"]
    kept = list((endpoint.root / "scratch").iterdir())
    assert len(kept) == 2, "the folder of the first load must be removed"
    assert all((path / "tmp").is_dir() for path in kept)


def test_one_of_several_loads_during_an_unload_succeeds(endpoint: Endpoint, folder: Path, run: Run) -> None:
    pending, unload = unload_during_a_request(endpoint, folder, run)
    loads = [run(endpoint.load, "a", folder) for _ in range(3)]
    (folder / "may_answer").touch()
    assert (pending.result().status_code, unload.result().status_code) == (200, 200)
    assert sorted(load.result().status_code for load in loads) == [200, 409, 409]


def test_counters_never_decrease_when_models_are_unloaded(endpoint: Endpoint, tiny_model: Path) -> None:
    model = add_model(endpoint, "tiny", tiny_model)

    def counters() -> list[float]:
        return [
            float(value) for value in re.findall(r"^berth_\S*_total (\S+)", endpoint.client.get("/metrics").text, re.M)
        ]

    seen = [counters()]
    for _ in range(2):
        assert endpoint.load("a", model).status_code == 200
        assert ask(endpoint, "a", ONE).status_code == 200
        seen.append(counters())
        assert endpoint.client.delete("/models/a").status_code == 200
        seen.append(counters())
    assert len(seen[0]) == 4
    assert all(
        after >= before for earlier, later in pairwise(seen) for before, after in zip(earlier, later, strict=True)
    )
    assert seen[-1] > seen[0]
    assert endpoint.models.work.requests == endpoint.models.work.tokens == 0


def test_unload_during_a_load_ends_it_without_leftovers(endpoint: Endpoint, folder: Path, run: Run) -> None:
    loading = run(endpoint.load, "a", folder)
    until((folder / "loading").exists)
    assert error_of(endpoint.load("a", folder)) == (409, "conflict", "the model a is being loaded: unload it first")
    assert error_of(ask(endpoint, "a"))[:2] == (503, "not_ready")
    assert error_of(endpoint.client.get("/models/a"))[:2] == (404, "not_found")
    assert endpoint.names() == []
    assert endpoint.client.delete("/models/a").status_code == 200
    assert error_of(loading.result())[:2] == (503, "not_ready")
    assert endpoint.nothing_is_left()
    (folder / "may_load").touch()
    (folder / "may_answer").touch()
    assert endpoint.load("a", folder).status_code == 200
    assert ask(endpoint, "a").status_code == 200


def test_model_is_unloaded_if_its_worker_can_not_restart(
    endpoint: Endpoint, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SageMaker then gets 404 and loads it again."""
    (folder / "may_load").touch()
    (folder / "may_answer").touch()
    assert endpoint.load("a", folder).status_code == 200
    (folder / "broken").touch()
    os.kill(endpoint.pools[0]._workers[0].process.pid, signal.SIGKILL)
    until(endpoint.nothing_is_left)
    assert endpoint.names() == []
    assert error_of(ask(endpoint, "a"))[:2] == (404, "not_found")
    assert endpoint.client.get("/ping").json() == {"status": "ready", "models": 0}
    lines = [record.getMessage() for record in caplog.records if record.name == "berth.serve.models.registry"]
    assert lines == ["a: unloaded, because its worker can't be started again: POST /models loads it"]
    (folder / "broken").unlink()
    assert endpoint.load("a", folder).status_code == 200
    assert ask(endpoint, "a").status_code == 200


def test_stop_during_an_unload_still_answers_accepted_requests(endpoint: Endpoint, folder: Path, run: Run) -> None:
    pending, unload = unload_during_a_request(endpoint, folder, run)
    waiting = run(endpoint.load, "a", folder)
    endpoint.models.stop()
    assert endpoint.models.active == 1
    (folder / "may_answer").touch()
    assert pending.result().json() == [1]
    assert unload.result().status_code == 200
    assert error_of(waiting.result())[:2] == (503, "not_ready")
    assert endpoint.models.active == 0
