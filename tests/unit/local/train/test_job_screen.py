"""A job's live screen in a pseudo-terminal: it gets recorded lines of a log, and its drawn text is checked."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.cells import cell_len

# Prints whether it is watched, then reads the words of `Terminal.play`: `say …`, `log …`, `start`, `end …`.
PLAYER = """
import sys
from pathlib import Path
from berth.common.console import is_watched, note
from berth.local.train.job import TrainingJob, TrainOutcome
from berth.local.train.job_screen import JobScreen
from berth.local.signals import Interrupts

hosts = int(sys.argv[1])
hyperparameters = {"sagemaker_program": "train.py"} if sys.argv[2] == "own" else {}
job = TrainingJob({}, Path("out"), hosts=hosts, hyperparameters=hyperparameters)
with JobScreen(job, note) as screen, Interrupts() as interrupts:
    print("watched" if is_watched() else "not watched", flush=True)
    for word, _, rest in (line.rstrip("\\n").partition(" ") for line in sys.stdin):
        if word == "start":
            screen.watch(interrupts)
        elif word == "end":
            screen.end(TrainOutcome(1 if rest else 0, 1.0, failures={rest: "reason"} if rest else {}))
            break
        else:
            getattr(screen, word)(rest.replace("\\\\r", "\\r"))
"""
ESCAPES = re.compile(r"\x1b\[[0-?]*[@-~]")
# pytest imports readline, which exports these to pytest-xdist's workers, and rich trusts them before the terminal.
FIXED_SIZE = ("COLUMNS", "LINES")
COLOURS = re.compile(r"\x1b\[[0-9;]*(?:3|4|9|10)[0-7](?:;[0-9;]*)?m")


class Terminal:
    """A program in a pseudo-terminal. drawn: all its output so far."""

    def __init__(self, master: int, player: Any) -> None:
        self.master = master
        self.player = player
        self.drawn = ""
        self._seen = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def play(self, *words: str) -> None:
        self.player.stdin.write("".join(f"{each}\n" for each in words))
        self.player.stdin.flush()

    def see(self, text: str) -> None:
        """Waits until `text` is drawn, after the texts of earlier calls."""
        deadline = time.monotonic() + 30
        while text not in self.new:
            assert time.monotonic() < deadline, repr(self.new[-1000:])
            time.sleep(0.02)
        self._seen += self.new.index(text) + len(text)

    @property
    def new(self) -> str:
        """The text drawn after the last `see`, without colours and cursor movements."""
        return ESCAPES.sub("", self.drawn)[self._seen :]

    def next_frames(self) -> str:
        """The text of the next three frames."""
        before, deadline = len(self.new), time.monotonic() + 30
        while self.new[before:].count(" so far") < 3:
            assert time.monotonic() < deadline, repr(self.new[before:])
            time.sleep(0.02)
        return self.new[before:]

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self) -> list[str]:
        """The lines that were drawn last, after the program's end."""
        assert self.player.wait(30) == 0
        self._reader.join(30)
        return [line.strip() for line in self.new.splitlines() if line.strip()]

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                return
            self.drawn += data.decode()


@contextmanager
def terminal(hosts: int = 1, program: str = "run_qa", **environment: str) -> Iterator[Terminal]:
    """The screen of a job of `hosts` in a terminal of 80 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    player = subprocess.Popen(
        [sys.executable, "-c", PLAYER, str(hosts), program],
        stdin=subprocess.PIPE,
        stdout=slave,
        stderr=slave,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in FIXED_SIZE}
        | {"TERM": "xterm-256color", **environment},
    )
    os.close(slave)
    try:
        shown = Terminal(master, player)
        shown.see("watched\r\n")
        yield shown
    finally:
        player.kill()
        player.communicate()
        os.close(master)


STEP = "step {} of 312  loss: 2.1300  learning rate: 2.50e-05  examples/s: 12.3  tokens/s: 3456  padding: 8 %  left: {}"


@pytest.mark.slow
def test_screen_shows_a_job_from_start_to_end() -> None:
    with terminal() as shown:
        shown.play("say Channel train: 1 file(s) from squad")
        shown.see("Channel train: 1 file(s) from squad\r\n")
        shown.play("start", "log algo-1 | berth: launch plan", "log algo-1 | berth:   program: run_qa")
        shown.see("so far; the whole log: out/train.log")
        shown.play(f"log algo-1 | {STEP.format(40, '1:02:03')}")
        shown.see("training step 40 of 312, loss 2.1300, 12.3")
        shown.see("examples/s, 1:02:03 left")
        shown.play("log algo-1 | evaluation 50 % done")
        shown.see("algo-1 evaluating")
        shown.play("log algo-1 | eval_f1 = 59.3", "log algo-1 | weights: the same on all 2 ranks")
        shown.see("algo-1 | eval_f1 = 59.3\r\n")
        shown.play(
            f"log algo-1 | {STEP.format(310, '0:02')}", "log algo-1 | berth: the job ends with exit code 0", "end"
        )
        last = shown.end()
        assert last[-1].startswith("algo-1 ended, exit code 0")
        assert last[-1].endswith("100 %"), "the log has no line for the last step"
        assert "algo-1 | weights" not in ESCAPES.sub("", shown.drawn), "unimportant lines are only in train.log"
        assert COLOURS.search(shown.drawn)


@pytest.mark.slow
def test_screen_shows_two_hosts_in_a_resized_terminal() -> None:
    with terminal(2, NO_COLOR="1") as shown:
        shown.play("start", "log algo-2 | berth: rendezvous: joined the leader algo-1")
        shown.see("algo-2 starting")
        shown.play(f"log algo-1 | {STEP.format(156, '2:03')}", f"log algo-1 | {'long ' * 100}")
        shown.see("algo-1 training step 156 of 312")
        shown.see("50 %")
        shown.resize(60, 24)
        shown.see("       " + "long " * 5 + "…")
        assert max(map(cell_len, shown.next_frames().splitlines())) <= 60
        shown.play("log algo-2 | berth: failed: rank 1 on algo-2 was killed by SIGKILL", "end algo-2")
        last = shown.end()
        assert "algo-2 | berth: failed: rank 1 on algo-2 was killed by SIGKILL" not in last, (
            "the command prints the reason itself"
        )
        assert last[-2].startswith("algo-1 ended")
        assert last[-1] == "algo-2 failed"
        assert not COLOURS.search(shown.drawn)


@pytest.mark.slow
def test_screen_prints_all_lines_of_own_program_and_shows_a_stop() -> None:
    with terminal(program="own") as shown:
        shown.play(
            "start", "log algo-1 | epoch 1", "log algo-1 |  10%|#\\r 20%|##\ta", "log algo-1 | \x1b[31mred\x1b[0m"
        )
        shown.see("algo-1 | epoch 1\r\n")
        shown.see("algo-1 |  20%|## a\r\n")
        shown.see("algo-1 | red\r\n")
        shown.see("\r\n       red ")
        shown.player.send_signal(signal.SIGINT)
        shown.see("algo-1 stopping")
        shown.play("say Stopping 1 container(s)")
        shown.see("Stopping 1 container(s)")
        shown.player.stdin.close()
        assert shown.end()[-1] == "algo-1 stopped"


@pytest.mark.slow
def test_screen_of_a_refused_job_has_no_blocks() -> None:
    with terminal(2) as shown:
        shown.play("say Made 2 of 2 hosts")
        shown.see("Made 2 of 2 hosts")
        shown.player.stdin.close()
        assert shown.end() == []


WATCHED = [sys.executable, "-c", "from berth.common.console import is_watched; print(is_watched())"]


def test_dumb_terminal_is_not_watched() -> None:
    master, slave = pty.openpty()
    subprocess.run(WATCHED, env={**os.environ, "TERM": "dumb"}, stdout=slave, stderr=slave, check=True)
    assert os.read(master, 100) == b"False\r\n"
    os.close(slave)
    os.close(master)


def test_pipe_with_forced_colours_is_not_watched() -> None:
    environment = {**os.environ, "TERM": "xterm", "FORCE_COLOR": "1"}
    assert subprocess.run(WATCHED, env=environment, capture_output=True, check=True).stdout == b"False\n"
