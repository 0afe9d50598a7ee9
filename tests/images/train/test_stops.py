"""Stopping a job on several hosts: one host's signal reaches every rank, and the next job resumes."""

import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Stopped:
    """A stopped job of run_qa on two hosts: its result, the time of the signal, and a call that starts it again."""

    ran: Any
    signalled_at: float
    checkpoints: Path
    start_again: Callable[[], Any]

    def last_step(self) -> tuple[str, str]:
        """The step and the folder of the checkpoint that each host's sentence names."""
        sentence = (
            r"the job was stopped \(SIGTERM\) at step (\d+) of 12: all steps are saved; .* "
            r"resumes from /opt/ml/checkpoints/(checkpoint-\d+-\w+)\."
        )
        sentences = self.ran.sentences().values()
        named = {match.groups() for match in (re.match(sentence, each) for each in sentences) if match}
        assert len(sentences) == 2, self.ran.log
        assert len(named) == 1, self.ran.log
        return named.pop()  # type: ignore[return-value]


@pytest.fixture(scope="module")
def stopped(
    train_job: Callable[..., Any],
    client: docker.DockerClient,
    pretrained: Path,
    excerpt: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Stopped:
    """The job after SIGTERM to its second host."""
    settings = {"do_train": "True", "per_device_train_batch_size": "4", "max_steps": "12", "log_seconds": "0"}
    settings |= {"max_seq_length": "64", "doc_stride": "16"}
    work = tmp_path_factory.mktemp("stopped")
    data, checkpoints = work / "data", work / "checkpoints"
    data.mkdir()
    (data / "squad.json").write_text(json.dumps(excerpt("train", 120)))

    def start() -> Any:
        return train_job({"train": data}, model=pretrained, hosts=2, hyperparameters=settings, checkpoints=checkpoints)

    sent: list[float] = []
    watching = signal_when(client, "algo-2", "step 3 of 12", sent)
    ran = start()
    watching.join(5)
    return Stopped(ran, sent[0], checkpoints, start)


@pytest.mark.transformers5
def test_job_stopped_by_signal_to_worker_saves_all_steps(stopped: Stopped) -> None:
    assert stopped.ran.outcome.exit_code == 143, stopped.ran.log
    assert max(stopped.ran.ended.values()) - stopped.signalled_at < 30
    _, name = stopped.last_step()
    assert [path.name for path in stopped.checkpoints.iterdir()] == [name]


@pytest.mark.nightly
@pytest.mark.transformers5
def test_stopped_job_resumes(stopped: Stopped) -> None:
    ran = stopped.start_again()
    assert ran.outcome.exit_code == 0, ran.log
    steps = [int(number) for number in re.findall(r"step (\d+) of 12", ran.log)]
    assert steps == list(range(int(stopped.last_step()[0]) + 1, 13))
