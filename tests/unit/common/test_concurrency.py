"""Parallel work: results and errors per item, and stopping all threads."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from berth.common.concurrency import BackgroundTask, run_all, run_parallel
from berth.common.errors import UserError


def test_run_parallel_returns_user_errors_beside_results() -> None:
    def work(item: int, _: threading.Event) -> int:
        if item == 2:
            raise UserError("2 is wrong.")
        return item * 10

    first, second, third = run_parallel([1, 2, 3], work)
    assert (first, third) == (10, 30)
    assert isinstance(second, UserError)
    assert str(second) == "2 is wrong."


def test_run_all_stops_at_the_first_error() -> None:
    finished: list[int] = []

    def work(item: int, _: threading.Event) -> int:
        if item == 2:
            raise UserError("2 is wrong.")
        finished.append(item)
        return item * 10

    with pytest.raises(UserError, match="2 is wrong"):
        run_all(range(1, 100), work, workers=1)
    assert finished == [1], "items after the error must not start"
    assert run_all([3, 4, 5], work, workers=2) == [30, 40, 50]
    assert run_all([], work, workers=2) == []


def test_run_parallel_stops_all_and_raises_other_errors() -> None:
    waited = []

    def work(item: str, stopped: threading.Event) -> None:
        if item == "breaks":
            raise ZeroDivisionError
        waited.append(stopped.wait(30))

    with pytest.raises(ZeroDivisionError):
        run_parallel(["waits", "breaks"], work)
    assert waited == [True]


def test_background_task_keeps_its_result() -> None:
    begin = threading.Event()
    task = BackgroundTask(lambda: begin.wait(30))
    begin.set()
    assert task.result() is True
    assert task.result() is True


def test_settle_waits_for_the_end_and_raises_no_error() -> None:
    begin = threading.Event()
    task = BackgroundTask(lambda: begin.wait(30) and 1 / 0)
    task.settle(0.01)  # the time-out
    begin.set()
    task.settle(30)
    with pytest.raises(ZeroDivisionError):
        task.result()


@pytest.mark.slow
def test_ctrl_c_lets_threads_clean_up_before_the_process_ends(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal, threading, time
from berth.common.concurrency import run_parallel

def work(item, stopped):
    stopped.wait(30)
    time.sleep(0.5)
    pathlib.Path({str(tmp_path)!r}, item).write_text("cleaned up")

threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
run_parallel(["one", "two"], work)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "KeyboardInterrupt" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
