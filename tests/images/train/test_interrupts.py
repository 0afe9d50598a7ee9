"""`build.py run` cleans up after itself: after Ctrl-C, after kill -9 by the next run, and beside another run."""

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

from berth.images import labels, pins

SLEEPS = "import time\nprint('READY', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def start(
    tmp_path: Path, channels: Callable[..., dict[str, Path]], profile: pins.Profile
) -> Callable[..., subprocess.Popen[str]]:
    """Starts `build.py run train` with a program of the user's in a process of its own."""
    data = channels(train="x")["train"]

    def run(name: str, program: str, *words: str) -> subprocess.Popen[str]:
        code = tmp_path / name
        code.mkdir()
        (code / "train.py").write_text(program)
        command = [sys.executable, str(pins.ROOT / "build.py"), "run", "train", "--data", str(data)]
        command += [
            "--profile",
            profile.name,
            "--code",
            str(code),
            "--entry-point",
            "train.py",
            "--output",
            str(tmp_path / f"{name}-out"),
            *words,
        ]
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
        assert line, f"the run ended without {word}: {process.stderr.read() if process.stderr else ''}"
    raise AssertionError(f"no {word} within {seconds:.0f} s")


def left_of(client: docker.DockerClient, pid: int) -> list[Any]:
    """The containers and networks of the run that process `pid` owns."""
    label = {"label": f"{labels.PID}={pid}"}
    return [*client.containers.list(all=True, filters=label), *client.networks.list(filters=label)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"])
def test_a_signal_leaves_nothing(
    number: signal.Signals, code: int, start: Callable[..., Any], client: docker.DockerClient
) -> None:
    run = start("sleeps", SLEEPS, "--hosts", "2")
    wait_for(run, "READY")
    assert len(left_of(client, run.pid)) == 3
    os.kill(run.pid, number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == code, said
    assert "Traceback" not in said
    assert left_of(client, run.pid) == []


def test_what_kill_9_left_goes_at_the_next_call(start: Callable[..., Any], client: docker.DockerClient) -> None:
    killed = start("sleeps", SLEEPS)
    wait_for(killed, "READY")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len(left_of(client, killed.pid)) == 2

    following = start("next", "print('well')\n")
    _, said = following.communicate(timeout=120)
    assert following.returncode == 0, said
    assert left_of(client, killed.pid) == left_of(client, following.pid) == []


def test_two_runs_at_once_do_not_meet(start: Callable[..., Any], client: docker.DockerClient) -> None:
    program = "import os\nprint('I am', os.environ['SM_CURRENT_HOST'], 'of', os.environ['SM_HOSTS'])\n"
    both = [start(name, program, "--hosts", "2") for name in ("one", "two")]
    for run in both:
        out, said = run.communicate(timeout=180)
        assert run.returncode == 0, said
        assert "algo-1 | I am algo-1" in out
        assert "algo-2 | I am algo-2" in out
        assert left_of(client, run.pid) == []


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this machine has a GPU, so --gpus is not refused")
def test_gpus_are_refused_where_there_are_none(start: Callable[..., Any]) -> None:
    run = start("gpus", SLEEPS, "--gpus")
    _, said = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "NVIDIA" in said.splitlines()[-1]
    assert "Traceback" not in said
