"""`build.py run` cleans up after itself: after Ctrl-C, after kill -9 by the next run, and beside another run."""

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
# A signal to a Python that has just begun is lost, and sent again after half a second: not enough for this one.
GOES_ON = "import time\ntime.sleep(2)\nprint('READY', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def start(tmp_path: Path, profile: pins.Profile) -> Callable[..., subprocess.Popen[str]]:
    """Starts `build.py run train` with a program of the user's, called train.py, in a process of its own."""

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
        assert line, f"the run ended without {word}: {process.stderr.read() if process.stderr else ''}"
    raise AssertionError(f"no {word} within {seconds:.0f} s")


def left_of(client: docker.DockerClient, pid: int) -> list[Any]:
    """The containers and networks of the run that process `pid` owns."""
    label = {"label": f"{labels.PID}={pid}"}
    return [*client.containers.list(all=True, filters=label), *client.networks.list(filters=label)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"])
def test_a_signal_leaves_nothing(
    number: signal.Signals, code: int, start: Callable[..., Any], client: docker.DockerClient, tmp_path: Path
) -> None:
    run = start("sleeps", SLEEPS, "--hosts", "2")
    wait_for(run, "READY")
    assert len(left_of(client, run.pid)) == 3
    os.kill(run.pid, number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == code, said
    assert "Traceback" not in said
    assert "failed" not in said
    assert said.splitlines()[-1] == (
        f"the job was stopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}; its log is "
        f"{tmp_path / 'sleeps-out/train.log'}, and how its hosts ended is in failure-algo-1, failure-algo-2 "
        "next to it"
    )
    told = (tmp_path / "sleeps-out/failure-algo-2").read_text()
    assert told.startswith("the job was stopped by a signal (SIGTERM) before ")
    assert left_of(client, run.pid) == []


@pytest.mark.parametrize("moment", ["create", "start"])
def test_ctrl_c_in_the_first_moment_of_a_host_ends_the_job_soon(
    moment: str, start: Callable[..., Any], client: docker.DockerClient, tmp_path: Path
) -> None:
    before = int(time.time())
    run = start("sleeps", GOES_ON, "--hosts", "2")
    # The engine tells the moment; asked again and again, a busy one answers when it has passed.
    mine = {"label": f"{labels.PID}={run.pid}", "event": moment}
    with contextlib.closing(client.events(since=before, filters=mine)) as told:
        next(told)
    os.kill(run.pid, signal.SIGINT)
    began = time.monotonic()
    out, said = run.communicate(timeout=60)
    took = time.monotonic() - began
    assert run.returncode == 130, said
    assert took < 8, f"2 s on a machine that does nothing else; a host that hears nothing is killed after 10: {said}"
    assert "READY" not in out
    assert "killed" not in said
    for failure in (tmp_path / "sleeps-out").glob("failure-*"):
        assert failure.read_text().splitlines()[0] in (
            "the job was stopped by a signal (SIGTERM) before training began; start it again.",
            "the job was stopped by a signal (SIGTERM) before it was done.",
        )
    assert left_of(client, run.pid) == []


STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS


def test_a_second_ctrl_c_ends_many_hosts_soon_and_blames_none_of_them(
    start: Callable[..., Any], client: docker.DockerClient, tmp_path: Path
) -> None:
    run = start("stubborn", STUBBORN, "--hosts", "8")
    for _ in range(8):
        wait_for(run, "READY")
    os.kill(run.pid, signal.SIGINT)
    wait_for(run, "the program has 110 s to save and end")
    began = time.monotonic()
    os.kill(run.pid, signal.SIGINT)
    out, said = run.communicate(timeout=120)
    took = time.monotonic() - began
    assert run.returncode == 130, said
    assert took < 20, "5 s on a machine that does nothing else"
    assert "failed" not in out + said
    assert "Stopping 8 container(s), at most 120 s; Ctrl-C stops them at once." in said
    assert left_of(client, run.pid) == []
    assert "algo-8 | READY" in (tmp_path / "stubborn-out" / "train.log").read_text()


def test_a_second_run_with_the_same_output_or_checkpoints_is_refused(start: Callable[..., Any], tmp_path: Path) -> None:
    first = start("first", SLEEPS, "--checkpoints", str(tmp_path / "kept"))
    wait_for(first, "READY")
    for words, folder in (
        (["--output", str(tmp_path / "first-out")], tmp_path / "first-out"),
        (["--checkpoints", str(tmp_path / "kept")], tmp_path / "kept"),
    ):
        second = start(f"second-{folder.name}", SLEEPS, *words)
        _, said = second.communicate(timeout=60)
        assert second.returncode == 1
        reason = f"Another run (process {first.pid}) writes to {folder}"
        assert said.endswith(f"berth: error: {reason}: wait for its end, or choose another folder.\n")
    os.kill(first.pid, signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 130


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
