"""Stopping a job on several hosts: one host's signal reaches every rank, and the next job resumes."""

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.common import labels

# The last rank signals its host's entry, as SageMaker would; every rank takes 3 s to save.
PROGRAM = """
import os, signal, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
def save(number, frame):
    time.sleep(3)
    with open(f"/opt/ml/checkpoints/rank-{world.rank}", "w") as file:
        file.write(os.environ["SM_CURRENT_HOST"])
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
world.Barrier()
if world.rank == world.size - 1:
    os.kill(1, signal.SIGTERM)
time.sleep(100)
"""


@pytest.mark.parametrize("script", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["py", "sh"])
def test_signal_to_one_host_reaches_every_rank(script: bool, user_job: Callable[..., Any], tmp_path: Path) -> None:
    files = {"train.py": PROGRAM, "start.sh": "python train.py\necho never\n"}
    checkpoints = tmp_path / "checkpoints"
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job(
        files, "start.sh" if script else "train.py", hosts=2, environment=environment, checkpoints=checkpoints
    )
    assert {path.name: path.read_text() for path in checkpoints.iterdir()} == {
        "rank-0": "algo-1",
        "rank-1": "algo-1",
        "rank-2": "algo-2",
        "rank-3": "algo-2",
    }, ran.log
    # The exit code is the program's own; for a script it is bash's, which is that of the signal.
    assert ran.outcome.exit_code == (143 if script else 0), ran.log
    assert "never" not in ran.log


def signal_when(client: docker.DockerClient, host: str, text: str, sent: list[float]) -> threading.Thread:
    """Send SIGTERM to a host of this process' job when algo-1 has logged `text`; the time is added to `sent`."""

    def watch() -> None:
        mine = {"label": f"{labels.PID}={os.getpid()}"}
        while not sent:
            time.sleep(0.2)
            running = client.containers.list(filters=mine)
            first = next((each for each in running if each.name.endswith("algo-1")), None)
            if first is not None and text in first.logs().decode():
                next(each for each in running if each.name.endswith(host)).kill("SIGTERM")
                sent.append(time.time())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.transformers5
def test_job_stopped_by_signal_to_worker_resumes(
    train_job: Callable[..., Any],
    client: docker.DockerClient,
    pretrained: Path,
    excerpt: Any,
    channels: Callable[..., dict[str, Path]],
    tmp_path: Path,
) -> None:
    settings = {"do_train": "True", "per_device_train_batch_size": "4", "max_steps": "12", "log_seconds": "0"}
    settings |= {"max_seq_length": "64", "doc_stride": "16"}
    job = {"hosts": 2, "hyperparameters": settings, "checkpoints": tmp_path / "checkpoints"}
    data = channels(train=excerpt("train", 120))
    sent: list[float] = []
    watching = signal_when(client, "algo-2", "step 3 of 12", sent)
    ran = train_job(data, model=pretrained, **job)
    watching.join(5)
    assert ran.outcome.exit_code == 143, ran.log
    assert max(ran.ended.values()) - sent[0] < 30
    sentence = (
        r"the job was stopped \(SIGTERM\) at step (\d+) of 12: all steps are saved; .* "
        r"resumes from /opt/ml/checkpoints/(checkpoint-\d+-\w+)\."
    )
    matches = {re.match(sentence, each) for each in ran.sentences().values()}
    (step, name) = next(iter(matches)).groups()  # type: ignore[union-attr]
    assert {each and each.groups() for each in matches} == {(step, name)}, ran.sentences()
    assert len(ran.sentences()) == 2
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [name]
    ran = train_job(data, model=pretrained, **job)
    assert ran.outcome.exit_code == 0, ran.log
    steps = [int(number) for number in re.findall(r"step (\d+) of 12", ran.log)]
    assert steps == list(range(int(step) + 1, 13))
