"""Signals to the whole entry, and to the console script `train`, which keeps those that come before its handlers."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

import pytest

from berth.train import entry
from berth.train.hosts.events import Event, Signalled
from berth.train.hosts.rendezvous import Stopped
from tests.unit.train.entries import HOSTS, ON_A_GPU, lay_out, start_hosts

pytestmark = pytest.mark.slow


WAITS = "import time; print('RUNS', flush=True); time.sleep(60)"
HANDLES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopping"))
print("RUNS", flush=True)
time.sleep(60)
"""
RAISED_BEFORE = """
import logging
try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
""" + HANDLES.replace('"stopping"', "143")


SAVES = """
import os, signal, sys, time
worker = os.environ["SM_CURRENT_HOST"] == "localhost"
def save(number, frame):
    time.sleep(0 if worker else 2)
    open(os.environ["SAGEMAKER_BASE_DIR"] + "/saved", "x").close()
    SENTENCE
    sys.exit(CODE)
signal.signal(signal.SIGTERM, save)
print("RUNS", flush=True)
time.sleep(60)
"""
WRITES = "open(os.environ['BERTH_FAILURE_FILE'], 'w').write('stopped at step 3: go on.')"


def run_and_stop(
    folder: Path, program: str, signalled: Sequence[int], number: int = signal.SIGTERM
) -> tuple[list[int], list[str], list[Path]]:
    """Signal the hosts with these indexes once all programs run; returns exit codes, logs and failure files."""
    processes, failures = start_hosts(folder, HOSTS, program)
    for process in processes:
        while "RUNS" not in (line := process.stdout.readline()):
            assert line, "the entry ended before its program ran"
    for at, index in enumerate(signalled):
        if index in signalled[:at]:
            time.sleep(1)  # two signals that arrive together count as one
        processes[index].send_signal(number)
    texts = [process.communicate(timeout=30)[0] for process in processes]
    return [process.returncode for process in processes], texts, failures


@pytest.mark.parametrize(
    ("code", "sentence", "first_lines"),
    [
        (0, "", None),
        (7, "", ["the job was stopped by a signal (SIGTERM) before it was done.", "exit code 7"]),
        (143, WRITES, ["stopped at step 3: go on.", "exit code 143"]),
    ],
    ids=["exits 0", "exits 7", "writes its own sentence"],
)
def test_signal_to_one_host_lets_every_host_save(
    tmp_path: Path, code: int, sentence: str, first_lines: list[str] | None
) -> None:
    """Only the worker gets the signal. It ends two seconds before the leader."""
    program = SAVES.replace("SENTENCE", sentence).replace("CODE", str(code))
    codes, texts, failures = run_and_stop(tmp_path, program, (1,))
    assert codes == [code, code], texts
    for host, text, failure in zip(HOSTS, texts, failures, strict=True):
        assert (tmp_path / host / "saved").exists(), text
        assert "SIGTERM: stopping this job; the program has 110 s to save and end" in text
        assert (failure.read_text().splitlines()[:2] if failure.exists() else None) == first_lines


def test_second_signal_to_one_host_ends_all_programs_at_once(tmp_path: Path) -> None:
    program = (
        SAVES.replace("SENTENCE", "")
        .replace("0 if worker else 2", "50")
        .replace(
            "def save(number, frame):", "def save(number, frame):\n    signal.signal(signal.SIGTERM, signal.SIG_DFL)"
        )
    )
    began = time.monotonic()
    codes, texts, failures = run_and_stop(tmp_path, program, (1, 1))
    assert codes == [143, 143], texts
    assert time.monotonic() - began < 20
    assert not list(tmp_path.glob("*/saved"))
    assert {path.read_text().splitlines()[0] for path in failures} == {
        "the job was stopped by a signal (SIGTERM) before it was done."
    }


@pytest.mark.parametrize(
    ("program", "number", "signalled", "code"),
    [
        (WAITS, signal.SIGTERM, (0, 1), 143),
        (WAITS, signal.SIGTERM, (1,), 143),
        (WAITS, signal.SIGTERM, (0,), 143),
        (WAITS, signal.SIGINT, (0, 1), 143),
        (HANDLES, signal.SIGTERM, (1,), 1),
        (RAISED_BEFORE, signal.SIGTERM, (1,), 143),
    ],
    ids=[
        "both hosts",
        "worker",
        "leader",
        "Ctrl-C on both",
        "worker's program has a handler",
        "handler after a logged exception",
    ],
)
def test_failure_of_a_stopped_job_names_no_host(
    tmp_path: Path, program: str, number: int, signalled: tuple[int, ...], code: int
) -> None:
    codes, texts, failures = run_and_stop(tmp_path, program, signalled, number)
    name = signal.Signals(number).name
    sentence = f"the job was stopped by a signal ({name}) before it was done."
    assert codes == [code, code], texts
    for text, path in zip(texts, failures, strict=True):
        assert path.read_text().splitlines()[:2] == [sentence, f"exit code {code}"]
        assert text.count(sentence) == 1


HANGING_DRIVER = """from berth.runtime.gpu import driver
detect = driver.detect_in_child
def announce(environ):
    print("detecting", flush=True)
    return detect(environ)
driver.detect_in_child = announce
from berth.train import entry
"""


def test_sigterm_ends_the_entry_while_the_driver_hangs(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    start = ON_A_GPU.replace("from berth.train import entry\n", HANGING_DRIVER)
    hangs = {"LD_LIBRARY_PATH": str(libcuda(tmp_path / "lib")), "FAKE_CUDA_INIT": "hang"}
    (running,), (failure,) = start_hosts(tmp_path, ["algo-1"], starts={"algo-1": start}, **hangs)
    try:
        assert running.stdout.readline() == "detecting\n"
        time.sleep(0.5)  # time for the child to call the driver
        running.terminate()
        began = time.monotonic()
        log, _ = running.communicate(timeout=30)
    finally:
        running.kill()
    assert time.monotonic() - began < 10
    assert running.returncode == 143, log
    assert failure.read_text().splitlines()[:2] == [
        "the job was stopped by a signal (SIGTERM) before training began; start it again.",
        "exit code 143",
    ]
    assert "Traceback" not in log


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restores this process' signal handlers after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_only_the_first_signal_during_the_start_raises() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    with pytest.raises(Stopped) as caught, entry._stoppable(events):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.number == signal.SIGTERM
    signal.raise_signal(signal.SIGTERM)
    assert [events.get(timeout=1), events.get(timeout=1)] == [Signalled(signal.SIGTERM)] * 2


@pytest.mark.usefixtures("handlers")
def test_signal_whose_exception_is_swallowed_is_queued() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    with entry._stoppable(events):
        with contextlib.suppress(Exception):
            signal.raise_signal(signal.SIGINT)
    assert events.get(timeout=1) == Signalled(signal.SIGINT)


SIGNAL_DURING_IMPORT = """
import importlib.abc, os, signal, sys
class Stopping(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "berth.train.entry":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Stopping())
from berth.train.command import main
sys.exit(main())
"""


def test_sigterm_while_the_entry_is_imported_is_not_lost(tmp_path: Path) -> None:
    root = lay_out(tmp_path, "algo-1", ["algo-1"])
    result = subprocess.run(
        [sys.executable, "-P", "-c", SIGNAL_DURING_IMPORT],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 128 + signal.SIGTERM, result.stderr
    assert (root / "output" / "failure").read_text().splitlines()[0] == (
        "the job was stopped by a signal (SIGTERM) before training began; start it again."
    )


def test_other_commands_run_without_blocked_signals() -> None:
    command = ["sh", "-c", "kill -TERM $$; echo 'the signal was blocked'"]
    run = f"import sys; sys.argv[1:] = {command!r}; from berth.train.command import main; main()"
    result = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, "")
