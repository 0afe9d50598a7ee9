"""run_qa from its hyperparameters to the model folder, in processes of its own, on one rank and on two.

A tiny BERT with random weights and synthetic SQuAD: what is proved is log lines, files, and that ranks train together.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BertConfig,
    BertForQuestionAnswering,
    BertTokenizer,
)

from berth.train.finetune.report import METRIC_PATTERNS

CITIES = {"france": "paris", "germany": "berlin", "italy": "rome", "spain": "madrid", "portugal": "lisbon"}
WORDS = [*CITIES, *CITIES.values(), "is", "the", "capital", "of", "what", "city", "a", "large", "old"]
# As the well-known notebook sends them through a plain estimator (strings), tiny sizes apart.
NOTEBOOK = {
    "model_name_or_path": "bert-large-uncased-whole-word-masking",
    "dataset_name": "squad",
    "do_train": "True",
    "do_eval": "True",
    "fp16": "True",
    "per_device_train_batch_size": "4",
    "per_device_eval_batch_size": "4",
    "num_train_epochs": "1",
    "max_seq_length": "40",
    "doc_stride": "8",
    "max_steps": "4",
    "pad_to_max_length": "True",
    "output_dir": "/opt/ml/model",
}


def squad(questions: range) -> dict[str, Any]:
    """SQuAD's official layout; contexts of several lengths, some longer than a window."""
    paragraphs = []
    for number in questions:
        country, city = list(CITIES.items())[number % len(CITIES)]
        context = "a large old city . " * (number % 13) + f"{city} is the capital of {country} ."
        answer = {"text": city, "answer_start": context.index(city)}
        question = {"id": f"q{number}", "question": f"what is the capital of {country}", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [question]})
    return {"version": "1.1", "data": [{"title": "capitals", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random weights and a vocabulary of twenty words."""
    folder = tmp_path_factory.mktemp("tiny")
    vocabulary = folder / "words.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]) + "\n")
    tokenizer = BertTokenizer(vocab=str(vocabulary), model_max_length=64)
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertForQuestionAnswering(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model"


# Imports once, which takes seconds, then forks one process per rank, which takes none.
SERVER = """
import json, os, sys
from berth.train import run_qa
for line in sys.stdin:
    ranks = []
    for rank in json.loads(line):
        pid = os.fork()
        if not pid:
            for stream in (1, 2):
                os.dup2(os.open(rank["streams"][stream - 1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            os.environ.update(rank["environment"])
            try:
                sys.exit(run_qa.main())
            finally:
                sys.stdout.flush()
        ranks.append(pid)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]), flush=True)
"""


def clean_environment() -> dict[str, str]:
    """Without what a launcher or a SageMaker job around the tests would say."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "SM_", "OMPI_"))}
    return outside | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


class End(NamedTuple):
    """How a rank ended."""

    code: int
    out: str
    err: str


class Job:
    """A job's /opt/ml below a folder of its own."""

    def __init__(self, base: Path, model: Path, hyperparameters: Mapping[str, str], train: range = range(20)) -> None:
        self.base = base
        (base / "input/config").mkdir(parents=True)
        (base / "input/config/hyperparameters.json").write_text(json.dumps(dict(hyperparameters)))
        for channel, questions in (("train", train), ("validation", range(20, 30))):
            (base / "input/data" / channel).mkdir(parents=True)
            (base / "input/data" / channel / "part.json").write_text(json.dumps(squad(questions)))
        shutil.copytree(model, base / "input/data/model")

    def weights(self) -> dict[str, torch.Tensor]:
        """What the job wrote."""
        return load_file(self.base / "model/model.safetensors")

    def metrics(self) -> dict[str, Any]:
        """metrics.json."""
        return json.loads((self.base / "model/metrics.json").read_text())

    def history(self) -> list[dict[str, float]]:
        """history.json."""
        return json.loads((self.base / "model/history.json").read_text())


class Host:
    """Starts ranks, as torchrun would."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *jobs: Job, **environment: str) -> list[End]:
        """One rank per job, all at once, to their ends."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [
            {
                "streams": [str(job.base / "out"), str(job.base / "err")],
                "environment": {
                    "SAGEMAKER_BASE_DIR": str(job.base),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(len(jobs)),
                    "LOCAL_WORLD_SIZE": str(len(jobs)),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "BERTH_BACKEND": "gloo",
                    **environment,
                },
            }
            for rank, job in enumerate(jobs)
        ]
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(ranks) + "\n")
        self.server.stdin.flush()
        codes = json.loads(self.server.stdout.readline())
        return [
            End(code, (job.base / "out").read_text(), (job.base / "err").read_text())
            for code, job in zip(codes, jobs, strict=True)
        ]

    def end(self) -> None:
        """Stop; a rank that hangs goes with it."""
        self.server.kill()
        self.server.communicate()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.end()


def found(log: str) -> dict[str, list[str]]:
    """What each metric pattern captures in a log, line by line."""
    return {
        pattern: [match[1] for line in log.splitlines() if (match := re.search(pattern, line))]
        for pattern in METRIC_PATTERNS
    }


def test_notebook_hyperparameters_unchanged(tmp_path: Path, tiny_model: Path) -> None:
    job = Job(tmp_path, tiny_model, NOTEBOOK)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/pytorch_model.bin").write_bytes(b"of an earlier job")
    ended = subprocess.run(
        [sys.executable, "-m", "berth.train.run_qa"],
        env=clean_environment() | {"SAGEMAKER_BASE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    out, err = ended.stdout, ended.stderr
    assert ended.returncode == 0, err
    for pattern, captured in found(out + err).items():
        assert len(captured) == 1, (pattern, captured)
        float(captured[0])
        assert re.fullmatch(r"\d+\.\d+", captured[0]), (pattern, captured)
    metrics = job.metrics()
    assert f"eval_f1 = {metrics['eval_f1']:.4f}".rstrip("0") in out
    assert metrics["train_steps"] == 4
    assert metrics["eval_samples"] == 10
    assert "warning: fp16 needs a GPU" in out
    assert "train data: channel train (not dataset_name squad)" in out
    assert "\r" not in out + err
    assert [entry["step"] for entry in job.history()] == [1, 2, 3, 4, 4]
    assert job.history()[-1]["f1"] == metrics["eval_f1"]
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "metrics.json", "history.json"} <= names
    assert not names & {"pytorch_model.bin", "training_args.bin"}
    assert not (tmp_path / "checkpoints").exists()
    predictions = json.loads((tmp_path / "output/data/eval_predictions.json").read_text())
    assert sorted(predictions) == [f"q{number}" for number in range(20, 30)]
    AutoModelForQuestionAnswering.from_pretrained(tmp_path / "model")
    assert AutoTokenizer.from_pretrained(tmp_path / "model").is_fast


TOGETHER = {
    "do_train": "true",
    "do_eval": "true",
    "per_device_train_batch_size": "2",
    "max_steps": "5",
    "optim": "sgd",  # Adam blows rounding up: a key's bias has no gradient but noise, which Adam scales to a whole step
    "max_seq_length": "48",
    "doc_stride": "8",
    "hidden_dropout_prob": "0",
    "attention_probs_dropout_prob": "0.0",
    "learning_rate": "0.5",
}


def test_two_ranks_train_together(tmp_path: Path, tiny_model: Path, host: Host) -> None:
    """Two ranks end with equal bits, equal to one process on the joint batch, unlike either alone."""
    pair = [Job(tmp_path / f"rank{rank}", tiny_model, TOGETHER) for rank in (0, 1)]
    alone = Job(tmp_path / "alone", tiny_model, TOGETHER)
    joint = Job(tmp_path / "joint", tiny_model, TOGETHER | {"per_device_train_batch_size": "4"})
    ends = host.run(*pair)
    assert [end.code for end in [*ends, *host.run(alone), *host.run(joint)]] == [0, 0, 0, 0], ends
    assert "weights: the same on all 2 ranks" in ends[0].out
    assert ends[1].out == "", "rank 1 computes and does not speak"
    assert not (pair[1].base / "model").exists(), "only rank 0 writes"
    assert pair[0].metrics()["world_size"] == 2
    assert pair[0].metrics()["epoch"] == joint.metrics()["epoch"] > alone.metrics()["epoch"]
    together, solo, reference = pair[0].weights(), alone.weights(), joint.weights()
    assert max((together[name] - reference[name]).abs().max().item() for name in together) < 1e-5
    assert max((together[name] - solo[name]).abs().max().item() for name in together) > 1e-3
    # Evaluated by two ranks, each window once: the same figures as by one.
    for name in ("eval_f1", "eval_exact_match"):
        assert pair[0].metrics()[name] == joint.metrics()[name]
    assert pair[0].metrics()["eval_loss"] == pytest.approx(joint.metrics()["eval_loss"], abs=1e-4)


def test_ranks_with_different_data_end_equal(tmp_path: Path, tiny_model: Path, host: Host) -> None:
    """Even if hosts hold different questions, gradients are averaged: equal bits, which are neither host's own."""
    datas = (range(0, 20), range(40, 60))
    pair = [Job(tmp_path / f"rank{rank}", tiny_model, TOGETHER, train=part) for rank, part in enumerate(datas)]
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends
    assert "weights: the same on all 2 ranks" in ends[0].out
    together = pair[0].metrics()["weights_sha256"]
    for rank, part in enumerate(datas):
        solo = Job(tmp_path / f"solo{rank}", tiny_model, TOGETHER, train=part)
        assert [end.code for end in host.run(solo)] == [0]
        assert solo.metrics()["weights_sha256"] != together


def test_best_model_and_resume(tmp_path: Path, tiny_model: Path, host: Host) -> None:
    """Evaluation while training picks the best checkpoint; a second start goes on from the newest one."""
    job = Job(
        tmp_path, tiny_model, TOGETHER | {"max_steps": "-1", "num_train_epochs": "2", "load_best_model_at_end": "True"}
    )
    (end,) = host.run(job)
    assert end.code == 0, end.err
    assert "checkpoints: epoch, in " in end.out
    steps = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert len(steps) == 2
    first = job.metrics()
    measured = [entry["f1"] for entry in job.history() if "f1" in entry]
    assert first["eval_f1"] == max(measured)
    (end,) = host.run(job)
    assert end.code == 0, end.err
    assert f"going on from {tmp_path}/checkpoints/" in end.out
    assert job.metrics()["weights_sha256"] == first["weights_sha256"]


def test_dataset_by_name_and_packed_model(tmp_path: Path, tiny_model: Path, host: Host) -> None:
    """dataset_name goes through the datasets library (here a folder), v2.0 as well; the model as a job leaves it."""
    job = Job(tmp_path, tiny_model, {})
    shutil.rmtree(tmp_path / "input/data")
    (tmp_path / "input/data/model").mkdir(parents=True)
    with tarfile.open(tmp_path / "input/data/model/model.tar.gz", "w:gz") as packed:
        packed.add(tiny_model, arcname=".")
    rows = [
        {"id": question["id"], "question": question["question"], "context": paragraph["context"], "answers": question}
        for paragraph in squad(range(12))["data"][0]["paragraphs"]
        for question in paragraph["qas"]
    ]
    for number, row in enumerate(rows):
        answers = row["answers"]["answers"] if number % 3 else []
        row["answers"] = {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}
    (tmp_path / "named").mkdir()
    for split in ("train", "validation"):
        lines = "\n".join(json.dumps(row) for row in rows)
        (tmp_path / "named" / f"{split}.jsonl").write_text(lines)
    hyperparameters = {
        "dataset_name": str(tmp_path / "named"),
        "cache_dir": str(tmp_path / "cache"),
        "version_2_with_negative": "True",
        "max_steps": "2",
        "max_train_samples": "6",
        "do_train": "True",
        "do_eval": "True",
        "do_predict": "True",
        "test_file": str(tmp_path / "test.json"),
        "max_seq_length": "48",
        "doc_stride": "8",
    }
    (tmp_path / "test.json").write_text(json.dumps(squad(range(30, 34))))
    (tmp_path / "input/config/hyperparameters.json").write_text(json.dumps(hyperparameters))
    (end,) = host.run(job)
    assert end.code == 0, end.err
    assert "train data: 6 of 12 questions" in end.out
    assert [len(captured) for captured in found(end.out + end.err).values()] == [1, 1, 1, 1, 1]
    assert job.metrics()["eval_NoAns_total"] == 4
    assert "NoAns_f1: " in end.out
    assert len(json.loads((tmp_path / "output/data/test_predictions.json").read_text())) == 4


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"dataset_name": "squad", "max_steps": "1"}, "dataset_name squad can't be loaded"),
        ({"model_name_or_path": "bert-base-uncased"}, "The config of bert-base-uncased can't be loaded"),
    ],
    ids=["dataset", "model"],
)
def test_hub_out_of_reach(given: dict[str, str], sentence: str, tmp_path: Path, tiny_model: Path, host: Host) -> None:
    job = Job(tmp_path, tiny_model, given | {"cache_dir": str(tmp_path / "cache")})
    for channel in ("model",) if "model_name_or_path" in given else ("train", "validation"):
        shutil.rmtree(tmp_path / "input/data" / channel)
    (end,) = host.run(job)
    assert end.code == 1
    assert sentence in end.err.splitlines()[-1]
    assert "in a job without a way to the hub pass the" in end.err.splitlines()[-1]
    assert "Traceback" not in end.err


ERRORS = {
    "unknown": ({"learning_rat": "1"}, "learning_rat is not known (did you mean learning_rate?)"),
    "several": ({"max_steps": "x", "seed": "1.5"}, "2 hyperparameters can't be used: max_steps 'x'"),
    "together": ({"bf16": "True", "dataloader_prefetch_factor": "2"}, "don't go together"),
    "stride": ({"max_seq_length": "20", "doc_stride": "30"}, "doc_stride is 30"),
    "long question": ({"max_seq_length": "10", "doc_stride": "4"}, "is too long"),
    "no file": ({"train_file": "other.json"}, "File other.json is not there"),
    "no path": ({"model_name_or_path": "/no/where"}, "model_name_or_path /no/where is not there"),
    "nothing": ({"do_train": "false", "do_eval": "false"}, "There is nothing to do"),
}


@pytest.mark.parametrize(("given", "sentence"), ERRORS.values(), ids=list(ERRORS))
def test_mistakes_end_in_one_line(
    given: dict[str, str], sentence: str, tmp_path: Path, tiny_model: Path, host: Host
) -> None:
    job = Job(tmp_path, tiny_model, given)
    if "model_name_or_path" in given:
        shutil.rmtree(tmp_path / "input/data/model")
    told = tmp_path / "sentence"
    (end,) = host.run(job, BERTH_FAILURE_FILE=str(told))
    assert end.code == 1
    assert "Traceback" not in end.err
    assert end.err.splitlines()[-1].startswith("berth error: ")
    assert sentence in end.err.splitlines()[-1]
    assert sentence in told.read_text()
