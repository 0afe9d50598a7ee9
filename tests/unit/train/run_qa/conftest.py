"""Fixtures: a tiny BERT with random weights, synthetic SQuAD, and jobs of run_qa with one process per rank."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForQuestionAnswering, BertTokenizer

from tests.ports import free_port

CITIES = {"france": "paris", "germany": "berlin", "italy": "rome", "spain": "madrid", "portugal": "lisbon"}
WORDS = [*CITIES, *CITIES.values(), "is", "the", "capital", "of", "what", "city", "a", "large", "old"]


def capitals(questions: range) -> dict[str, Any]:
    """Questions in SQuAD's official layout. The contexts have several lengths, and some are longer than a window."""
    paragraphs = []
    for number in questions:
        country, city = list(CITIES.items())[number % len(CITIES)]
        context = "a large old city . " * (number % 13) + f"{city} is the capital of {country} ."
        answer = {"text": city, "answer_start": context.index(city)}
        question = {"id": f"q{number}", "question": f"what is the capital of {country}", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [question]})
    return {"version": "1.1", "data": [{"title": "capitals", "paragraphs": paragraphs}]}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random weights and a vocabulary of 25 tokens."""
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


# Imports run_qa once, which takes seconds, and then forks one process per rank.
SERVER = """
import json, os, resource, sys
from berth.train.run_qa import program
for line in sys.stdin:
    ranks = []
    for rank in json.loads(line):
        pid = os.fork()
        if not pid:
            for stream in (1, 2):
                os.dup2(os.open(rank["streams"][stream - 1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            os.environ.update(rank["environment"])
            exec(rank["before"], {})
            if limit := int(os.environ.get("LARGEST_FILE", "0")):
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            program.exit_now(program.main())
        ranks.append(pid)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]), flush=True)
"""


# Each evaluation has a lower F1 than the one before.
WORSE_AND_WORSE = """
from berth.train.run_qa.evaluation import Evaluator
measure, fake_scores = Evaluator._measure, iter([90.0, 80.0, 70.0, 60.0])
def falling(*arguments):
    scores, predictions = measure(*arguments)
    return scores | {"f1": next(fake_scores)}, predictions
Evaluator._measure = falling
"""


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """This process' environment without the variables of a launcher or a SageMaker job."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "SM_", "OMPI_"))}
    return outside | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


class End(NamedTuple):
    """How a rank ended."""

    out: str
    err: str


class Job:
    """The folder of a job, in place of /opt/ml, with its hyperparameters and channels."""

    def __init__(self, base: Path, model: Path, hyperparameters: Mapping[str, str], train: range = range(20)) -> None:
        self.base = base
        (base / "input/config").mkdir(parents=True)
        (base / "input/config/hyperparameters.json").write_text(json.dumps(dict(hyperparameters)))
        for channel, questions in (("train", train), ("validation", range(20, 30))):
            (base / "input/data" / channel).mkdir(parents=True)
            (base / "input/data" / channel / "part.json").write_text(json.dumps(capitals(questions)))
        shutil.copytree(model, base / "input/data/model")
        self.before = ""  # Python code that the rank runs before run_qa

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights that the job wrote."""
        return load_file(self.base / "model/model.safetensors")

    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json."""
        return json.loads((self.base / "model/metrics.json").read_text())

    def history(self) -> list[dict[str, float]]:
        """The content of history.json."""
        return json.loads((self.base / "model/history.json").read_text())

    def checkpoints(self) -> list[Path]:
        """The content of the checkpoint folder, sorted by step."""
        paths = (self.base / "checkpoints").iterdir()
        return sorted(paths, key=lambda path: int(path.name.split("-")[1]))

    def resume_from(self, checkpoint: Path) -> None:
        """Make this checkpoint, of this or another job, the only one of this job."""
        aside = Path(shutil.copytree(checkpoint, self.base / "aside" / checkpoint.name))
        shutil.rmtree(self.base / "checkpoints", ignore_errors=True)
        aside.parent.rename(self.base / "checkpoints")


class Host:
    """Starts the ranks of jobs, as torchrun would."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *jobs: Job, code: int = 0, **environment: str) -> list[End]:
        """Run one rank per job, all together, and wait for them.

        code: exit code that each rank must have. LARGEST_FILE: a limit in bytes, like a full disk.
        """
        port = free_port()
        ranks = [
            {
                "streams": [str(job.base / "out"), str(job.base / "err")],
                "before": job.before,
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
        self.server.stdin.write(json.dumps(ranks) + "\n")  # type: ignore[union-attr]
        self.server.stdin.flush()  # type: ignore[union-attr]
        codes = json.loads(self.server.stdout.readline())  # type: ignore[union-attr]
        ends = [End((job.base / "out").read_text(), (job.base / "err").read_text()) for job in jobs]
        assert codes == [code] * len(jobs), (codes, ends)
        return ends

    def end(self) -> None:
        """Stop the server, together with ranks that hang."""
        self.server.kill()
        self.server.communicate()


@pytest.fixture(scope="session")
def host(clean_environment: dict[str, str]) -> Iterator[Host]:
    """`host.run(*jobs)` runs one rank for each job."""
    host = Host(clean_environment)
    yield host
    host.end()


@pytest.fixture(scope="session")
def new_job() -> type[Job]:
    """`new_job(folder, model, hyperparameters)` creates the folder of a job."""
    return Job


@pytest.fixture(scope="session")
def few_steps() -> dict[str, str]:
    """Hyperparameters of a few steps whose result does not depend on the number of ranks."""
    return {
        "do_train": "true",
        "do_eval": "true",
        "per_device_train_batch_size": "2",
        "max_steps": "5",
        # Not Adam: the gradient of an attention key's bias is only rounding noise, which Adam scales to a whole step.
        "optim": "sgd",
        "max_seq_length": "48",
        "doc_stride": "8",
        "hidden_dropout_prob": "0",
        "attention_probs_dropout_prob": "0.0",
        "learning_rate": "0.5",
    }
