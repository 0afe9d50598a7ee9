"""Mistakes and faults: every host reports the same sentence with a non-zero exit code within seconds."""

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Excerpt

ENDS_WITHIN = 15.0
TRAIN = {"do_train": "True", "max_steps": "1", "per_device_train_batch_size": "4"}


def first_question(data: dict[str, Any]) -> dict[str, Any]:
    question: dict[str, Any] = data["data"][0]["paragraphs"][0]["qas"][0]
    return question


def list_as_id(data: dict[str, Any]) -> dict[str, Any]:
    first_question(data)["id"] = ["a", "b"]
    return data


def misplaced(data: dict[str, Any], count: int) -> dict[str, Any]:
    """The data with wrong offsets (by one character) in the answers of `count` questions."""
    questions = [
        question for article in data["data"] for paragraph in article["paragraphs"] for question in paragraph["qas"]
    ]
    for question in questions[:count]:
        for answer in question["answers"]:
            answer["answer_start"] += 1
    return data


@dataclass(frozen=True)
class Mistake:
    """A mistake that run_qa detects. change: spoils valid data for the channel; says: texts in the sentence."""

    says: tuple[str, ...]
    change: Callable[[dict[str, Any]], Any] = lambda data: data
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    channel: str = "train"
    model: bool = True


MISTAKES = {
    "unknown hyperparameter": Mistake(("learning_rat", "learning_rate"), hyperparameters={"learning_rat": "3e-5"}),
    "list as id": Mistake(("train/data.json", "id"), list_as_id),
    "channel train missing": Mistake(("no train data", "train_file"), channel="validation"),
    "model folder without weights": Mistake(("no weights",), model=False),
}
"""One mistake per place in run_qa that detects them; tests/unit covers the others."""
NIGHTLY_MISTAKES = sorted(set(MISTAKES) - {"list as id"})


def assert_failure(ran: Any, hosts: int, says: tuple[str, ...], since: float) -> str:
    """Check how a job failed; returns its sentence. since: the time from which its hosts must exit soon."""
    sentences = ran.sentences()
    assert len(sentences) == hosts, ran.outcome
    sentence = sentences["algo-1"]
    assert set(sentences.values()) == {sentence}, "hosts report different sentences"
    assert ran.outcome.exit_code != 0
    for words in says:
        assert words in sentence
    assert "Traceback" not in sentence
    assert ran.outcome.model_archive is None, "a failed job must not leave a model"
    assert len(ran.ended) == hosts
    assert max(ran.ended.values()) - since < ENDS_WITHIN
    return sentence


@pytest.mark.transformers5
@pytest.mark.parametrize(
    "name", ["list as id", *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY_MISTAKES)]
)
def test_mistake_is_reported_once_per_host(
    name: str,
    train_job: Callable[..., Any],
    channels: Callable[..., dict[str, Path]],
    tiny_model: Path,
    excerpt: Excerpt,
    tmp_path: Path,
) -> None:
    mistake = MISTAKES[name]
    model = tiny_model
    if not mistake.model:
        model = tmp_path / "model"
        model.mkdir()
        (model / "config.json").write_text((tiny_model / "config.json").read_text())
    good = excerpt("train", 16)
    data = channels(**{mistake.channel: mistake.change(copy.deepcopy(good))})
    ran = train_job(data | {"model": model}, hosts=2, hyperparameters=TRAIN | dict(mistake.hyperparameters))
    sentence = assert_failure(ran, 2, mistake.says, ran.when("^algo-. . berth: failed: "))
    assert "Traceback" not in ran.log, "a mistake must not print a traceback"
    for host in ("algo-1", "algo-2"):
        assert len([line for line in ran.lines_of(host) if sentence in line]) == 1, (
            "the sentence must be logged once per host"
        )


@pytest.mark.nightly
@pytest.mark.transformers5
def test_few_answers_with_wrong_offsets_are_skipped(
    train_job: Callable[..., Any],
    channels: Callable[..., dict[str, Path]],
    tiny_model: Path,
    excerpt: Excerpt,
) -> None:
    data = channels(train=misplaced(excerpt("train", 40), 2))
    ran = train_job(data | {"model": tiny_model}, hyperparameters=TRAIN)
    assert ran.outcome.exit_code == 0
    line, summary = (line for line in ran.log.splitlines() if "skipped" in line)
    assert "2 questions skipped" in line
    assert "data.json, article 1, paragraph 1, question 1 (id " in line
    assert summary == line, "the end of the log must repeat the line"
    assert "train data: 38 of 40 questions" in ran.log


RAISES = """
import os, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 1:
    print("FAULT", flush=True)
    raise ValueError("no rows left")
time.sleep(100)
"""
KILLED = RAISES.replace('raise ValueError("no rows left")', "os.kill(os.getpid(), 9)")
ALONE = """
import os, time
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    time.sleep(2)
    print("FAULT", flush=True)
    raise ValueError("no rows left")
time.sleep(100)
"""
LEADER_EXITS = ALONE.replace("algo-2", "algo-1").replace('raise ValueError("no rows left")', "raise SystemExit(7)")


@dataclass(frozen=True)
class Crash:
    """A user's program that fails, under mpirun unless `environment` says otherwise."""

    program: str
    says: tuple[str, ...]
    code: int
    environment: Mapping[str, str] = field(default_factory=lambda: {"BERTH_DISTRIBUTION": "mpi"})


CRASHES = {
    "a rank raises": Crash(RAISES, ("rank 1 on algo-2: ValueError: no rows left", "train.py:7"), 1),
    "a rank is killed with SIGKILL": Crash(KILLED, ("rank 1 on algo-2 was killed by SIGKILL",), 137),
    "one host's program raises": Crash(ALONE, ("algo-2: ValueError: no rows left", "train.py:6"), 1, {}),
    "the leader's program exits with 7": Crash(
        LEADER_EXITS, ("algo-1: train.py failed and wrote nothing to stderr",), 7, {}
    ),
}


@pytest.mark.parametrize("name", CRASHES)
def test_failure_of_program_is_reported(name: str, user_job: Callable[..., Any]) -> None:
    crash = CRASHES[name]
    ran = user_job({"train.py": crash.program}, "train.py", hosts=2, environment=crash.environment)
    assert_failure(ran, 2, crash.says, ran.when("FAULT"))
    assert ran.outcome.exit_code == crash.code


@dataclass(frozen=True)
class Refused:
    """A user's program or launch that a job rejects before the program runs."""

    program: str
    text: str
    says: str
    hyperparameters: Mapping[str, str] = field(default_factory=dict)


MPI = {"sagemaker_mpi_enabled": "true"}
BAD_PROGRAMS = {
    "Windows line ends": Refused("train.sh", "echo ran\r\n", "train.sh has Windows line ends (CRLF)"),
    "a package that is not installed": Refused(
        "train.py", "import cv2", "add the line opencv-python-headless to requirements.txt", MPI
    ),
    "a custom MPI option that mpirun does not know": Refused(
        "train.py",
        "print('ran')",
        "mpirun does not know the option --tag-ouput; correct or remove it in the custom MPI options",
        {**MPI, "sagemaker_mpi_custom_mpi_options": "-verbose --tag-ouput"},
    ),
    "a custom MPI option with which mpirun starts nothing": Refused(
        "train.py",
        "print('ran')",
        "mpirun ended with exit code 0 and started no rank; remove options that only print something",
        {**MPI, "sagemaker_mpi_custom_mpi_options": "--version"},
    ),
}


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_bad_program_is_rejected_before_it_runs(name: str, user_job: Callable[..., Any]) -> None:
    bad = BAD_PROGRAMS[name]
    ran = user_job({bad.program: bad.text}, bad.program, bad.hyperparameters, hosts=2)
    assert "ran" not in [line.removeprefix("[rank 1] ") for line in ran.lines_of("algo-1")]
    assert_failure(ran, 2, (bad.says,), ran.when("launch plan"))


@pytest.mark.transformers5
def test_host_that_never_starts_is_reported(
    lone_hosts: Callable[..., Any], channels: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    present = ["algo-1", "algo-2"]
    environment = {host: {"BERTH_RENDEZVOUS_TIMEOUT": "5"} for host in present}
    with lone_hosts(channels(train="x"), TRAIN, hosts=3, present=present, environment=environment) as containers:
        began = time.time()
        codes = {name: container.wait(timeout=60)["StatusCode"] for name, container in containers.items()}
    seconds = time.time() - began - 5
    first = {name: (tmp_path / name / "output/failure").read_text().splitlines()[0] for name in containers}
    assert set(first.values()) == {first["algo-1"]}
    assert "algo-3 did not join" in first["algo-1"]
    assert all(code != 0 for code in codes.values())
    assert seconds < ENDS_WITHIN
