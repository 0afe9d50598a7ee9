"""`build.py run` removes its containers after Ctrl-C, or at the next run after kill -9; two runs do not interfere."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.common import labels
from berth.images.pins import pins

SLEEPS = "import time\nprint('READY', flush=True)\ntime.sleep(600)\n"
# A Python that is just starting ignores the signal, which the run repeats every half second. This program takes longer.
STARTS_SLOWLY = "import time\ntime.sleep(2)\nprint('READY', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def start(tmp_path: Path, profile: pins.Profile) -> Callable[..., subprocess.Popen[str]]:
    """Starts `build.py run train` with a user's train.py in a child process."""

    def run(name: str, program: str, *words: str) -> subprocess.Popen[str]:
        code = tmp_path / name
        code.mkdir()
        (code / "train.py").write_text(program)
        command = [sys.executable, str(pins.ROOT / "build.py"), "run", "train", "--code", str(code)]
        output = [] if "--output" in words else ["--output", str(tmp_path / f"{name}-out")]
        command += ["--profile", profile.name, *output, *words]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path
        )

    return run


def wait_for(process: subprocess.Popen[str], word: str, seconds: float = 90) -> None:
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if word in line:
            return
        assert line, f"the run ended before it printed {word}: {process.stderr.read() if process.stderr else ''}"
    raise AssertionError(f"{word} was not printed within {seconds:.0f} s")


def remaining(client: docker.DockerClient, pid: int) -> list[Any]:
    """The remaining containers and networks of a run, by its process id."""
    label = {"label": f"{labels.PID}={pid}"}
    return [*client.containers.list(all=True, filters=label), *client.networks.list(filters=label)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"])
def test_run_removes_everything_after_signal(
    number: signal.Signals, code: int, start: Callable[..., Any], client: docker.DockerClient, tmp_path: Path
) -> None:
    run = start("sleeps", SLEEPS, "--hosts", "2")
    wait_for(run, "READY")
    assert len(remaining(client, run.pid)) == 3
    os.kill(run.pid, number)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == code, stderr
    assert "Traceback" not in stderr
    assert "failed" not in stderr
    assert stderr.splitlines()[-1] == (
        f"the job was stopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}; its log is "
        f"{tmp_path / 'sleeps-out/train.log'}, and how its hosts ended is in failure-algo-1, failure-algo-2 "
        "next to it"
    )
    failure = (tmp_path / "sleeps-out/failure-algo-2").read_text()
    assert failure.startswith("the job was stopped by a signal (SIGTERM) before ")
    assert remaining(client, run.pid) == []


@pytest.mark.parametrize("moment", ["create", "start"])
def test_ctrl_c_while_hosts_start_ends_the_job_soon(
    moment: str, start: Callable[..., Any], client: docker.DockerClient, tmp_path: Path
) -> None:
    before = int(time.time())
    run = start("sleeps", STARTS_SLOWLY, "--hosts", "2")
    # Wait for the engine's event: polling a busy engine would miss the moment.
    mine = {"label": f"{labels.PID}={run.pid}", "event": moment}
    with contextlib.closing(client.events(since=before, filters=mine)) as events:
        next(events)
    os.kill(run.pid, signal.SIGINT)
    # 2 s on an idle machine; the run would wait two minutes for a host that gets no signal.
    stdout, stderr = run.communicate(timeout=60)
    assert run.returncode == 130, stderr
    assert "READY" not in stdout
    assert "killed" not in stderr
    for failure in (tmp_path / "sleeps-out").glob("failure-*"):
        assert failure.read_text().splitlines()[0] in (
            "the job was stopped by a signal (SIGTERM) before training began; start it again.",
            "the job was stopped by a signal (SIGTERM) before it was done.",
        )
    assert remaining(client, run.pid) == []


STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS


def test_second_ctrl_c_ends_many_hosts_soon_without_failures(
    start: Callable[..., Any], client: docker.DockerClient, tmp_path: Path
) -> None:
    run = start("stubborn", STUBBORN, "--hosts", "8")
    for _ in range(8):
        wait_for(run, "READY")
    os.kill(run.pid, signal.SIGINT)
    wait_for(run, "the program has 110 s to save and end")
    os.kill(run.pid, signal.SIGINT)
    stdout, stderr = run.communicate(timeout=60)  # 5 s on an idle machine
    assert run.returncode == 130, stderr
    assert "failed" not in stdout + stderr
    assert "Stopping 8 container(s), at most 120 s; Ctrl-C stops them at once." in stderr
    assert remaining(client, run.pid) == []
    assert "algo-8 | READY" in (tmp_path / "stubborn-out" / "train.log").read_text()


def test_next_run_removes_what_kill_9_left(start: Callable[..., Any], client: docker.DockerClient) -> None:
    killed = start("sleeps", SLEEPS)
    wait_for(killed, "READY")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len(remaining(client, killed.pid)) == 2

    following = start("next", "print('well')\n")
    _, stderr = following.communicate(timeout=120)
    assert following.returncode == 0, stderr
    assert remaining(client, killed.pid) == remaining(client, following.pid) == []


def test_two_concurrent_runs_are_separate(start: Callable[..., Any], client: docker.DockerClient) -> None:
    program = "import os\nprint('I am', os.environ['SM_CURRENT_HOST'], 'of', os.environ['SM_HOSTS'])\n"
    both = [start(name, program, "--hosts", "2") for name in ("one", "two")]
    for run in both:
        stdout, stderr = run.communicate(timeout=180)
        assert run.returncode == 0, stderr
        assert "algo-1 | I am algo-1" in stdout
        assert "algo-2 | I am algo-2" in stdout
        assert remaining(client, run.pid) == []
