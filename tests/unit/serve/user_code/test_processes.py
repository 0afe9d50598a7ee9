"""A handler's child processes can be terminated, and its printed and logged lines keep their order."""

import os
import re
import signal
from typing import Any

import pytest

ENDS = """
import concurrent.futures, multiprocessing, os, signal, subprocess, time

def model_fn(model_dir):
    return None

def waits(ready):
    ready.set()
    time.sleep(60)

def ended_at_once():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join(20)
    return child.exitcode

def predict_fn(data, model):
    if data == "pid":
        return os.getpid()
    if data == "Popen":
        child = subprocess.Popen(["sleep", "60"])
        child.terminate()
        return child.wait(20)
    if data == "interrupt":
        child = subprocess.Popen(["sleep", "60"])
        child.send_signal(signal.SIGINT)
        return child.wait(20)
    if data == "at once":
        return sorted({ended_at_once() for _ in range(50)})
    if data == "thread":
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return pool.submit(ended_at_once).result()
    context = multiprocessing.get_context(data)
    ready = context.Event()
    child = context.Process(target=waits, args=(ready,))
    child.start()
    ready.wait(20)
    child.terminate()
    child.join(20)
    return child.exitcode
"""


@pytest.mark.slow
def test_handlers_children_can_be_terminated_and_its_worker_can_not(serve: Any) -> None:
    client = serve(ENDS)
    for kind in ("Popen", "fork", "spawn", "forkserver"):
        assert client.post("/invocations", json=kind).json() == -signal.SIGTERM, kind
    assert client.post("/invocations", json="at once").json() == [-signal.SIGTERM]
    assert client.post("/invocations", json="thread").json() == -signal.SIGTERM
    assert client.post("/invocations", json="interrupt").json() == -signal.SIGINT
    worker = client.post("/invocations", json="pid").json()
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal sends Ctrl-C to all processes
        os.kill(worker, number)
        assert client.post("/invocations", json="pid").json() == worker


SPEAKS = """
import logging, sys

log = logging.getLogger(__name__)

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    for number in range(20):
        print(f"line {number}.0")
        log.info("line %s.1", number)
        print(f"line {number}.2", file=sys.stderr)
        logging.getLogger("helpers.deep").info("line %s.3", number)
    log.debug("a debug line")
"""


def test_print_and_log_lines_keep_their_order(serve: Any, capfd: pytest.CaptureFixture[str]) -> None:
    client = serve(SPEAKS)
    capfd.readouterr()
    client.post("/invocations", json=1)
    log = capfd.readouterr().err
    assert re.findall(r"line (\d+\.\d)", log) == [f"{number}.{part}" for number in range(20) for part in range(4)]
    assert "a debug line" not in log
