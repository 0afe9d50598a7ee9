"""A job that is told to stop, on hosts: one host's signal reaches every rank, and what is saved is used."""

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

# The last rank signals the entry of its own host, a worker, as SageMaker would; every rank saves, and takes its time.
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


@pytest.mark.parametrize("script", [False, True], ids=["py", "sh"])
def test_one_hosts_signal_reaches_each_rank_under_mpirun(
    script: bool, user_job: Callable[..., Any], tmp_path: Path
) -> None:
    files = {"train.py": PROGRAM, "start.sh": "python train.py\necho never\n"}
    kept = tmp_path / "checkpoints"
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job(files, "start.sh" if script else "train.py", hosts=2, environment=environment, checkpoints=kept)
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        "rank-0": "algo-1",
        "rank-1": "algo-1",
        "rank-2": "algo-2",
        "rank-3": "algo-2",
    }, ran.log
    # A program's own code is the job's; bash's is that of the signal, whatever the program that it ran says.
    assert ran.outcome.exit_code == (143 if script else 0), ran.log
    assert "never" not in ran.log


def signal_when(client: docker.DockerClient, host: str, text: str, told: list[float]) -> threading.Thread:
    """Sends SIGTERM to a host of this process' job once its first host has said `text`; `told` gets the time."""

    def watch() -> None:
        mine = {"label": f"{labels.PID}={os.getpid()}"}
        while not told:
            time.sleep(0.2)
            running = client.containers.list(filters=mine)
            first = next((each for each in running if each.name.endswith("algo-1")), None)
            if first is not None and text in first.logs().decode():
                next(each for each in running if each.name.endswith(host)).kill("SIGTERM")
                told.append(time.time())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.transformers5
def test_a_signal_to_a_worker_saves_the_training_of_all_and_the_next_job_goes_on(
    train_job: Callable[..., Any],
    client: docker.DockerClient,
    pretrained: Path,
    excerpt: Any,
    channels: Callable[..., dict[str, Path]],
    tmp_path: Path,
) -> None:
    given = {"do_train": "True", "per_device_train_batch_size": "4", "max_steps": "12", "log_seconds": "0"}
    given |= {"max_seq_length": "64", "doc_stride": "16"}
    job = {"hosts": 2, "hyperparameters": given, "checkpoints": tmp_path / "checkpoints"}
    data = channels(train=excerpt("train", 120))
    told: list[float] = []
    watching = signal_when(client, "algo-2", "step 3 of 12", told)
    ran = train_job(data, model=pretrained, **job)
    watching.join(5)
    assert ran.outcome.exit_code == 143, ran.log
    assert max(ran.ended.values()) - told[0] < 30
    sentence = (
        r"the job was stopped \(SIGTERM\) at step (\d+) of 12: /opt/ml/checkpoints/(checkpoint-\d+-\w+) holds all"
    )
    said = {re.match(sentence, each) for each in ran.sentences().values()}
    (step, name) = next(iter(said)).groups()  # type: ignore[union-attr]
    assert {each and each.groups() for each in said} == {(step, name)}, ran.sentences()
    assert len(ran.sentences()) == 2
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [name]
    ran = train_job(data, model=pretrained, **job)
    assert ran.outcome.exit_code == 0, ran.log
    steps = [int(number) for number in re.findall(r"step (\d+) of 12", ran.log)]
    assert steps == list(range(int(step) + 1, 13))
