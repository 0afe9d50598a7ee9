"""Common mistakes of jobs and odd data, one job for each kind, and what the job must say of it."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.jobs.small import excerpt, write_model
from berth.local.demo import pretrained_model
from tests.doubles.package_index import wheel

Files = Mapping[str, str | bytes]
_PARSER = "import argparse\nparser = argparse.ArgumentParser()\n"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One job.

    expected: a pattern in the failure's first line, or, of a job that ends well, in its log. code: the source folder,
    whose train.py runs; empty for run_qa, which trains on `train` and starts from `model`. config: files of
    /opt/ml/input/config. again: hyperparameters of a second start with the same checkpoints, which is the one to judge.
    """

    name: str
    expected: str
    code: Files = field(default_factory=dict)
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    train: Files = field(default_factory=lambda: {"train.json": questions()})
    model: Callable[[Path], Path] = lambda folder: write_model(folder, pretrained_model())
    again: Mapping[str, str] = field(default_factory=dict)


def questions(change: Callable[[dict[str, Any], int], None] = lambda question, number: None) -> str:
    """Sixteen questions of the embedded sample as a file; `change` gets each question and its number."""
    data = excerpt("train", 16)
    rows = [question for article in data["data"] for part in article["paragraphs"] for question in part["qas"]]
    for number, question in enumerate(rows):
        change(question, number)
    return json.dumps(data)


def _without_id(question: dict[str, Any], number: int) -> None:
    del question["id"]


def _float_id(question: dict[str, Any], number: int) -> None:
    question["id"] = float(number)


def _empty_answer(question: dict[str, Any], number: int) -> None:
    if number == 0:
        question["answers"] = [{"text": "", "answer_start": 0}]


def _three_outputs(folder: Path) -> Path:
    from transformers import AutoConfig, BertForQuestionAnswering

    write_model(folder, pretrained_model())
    config = AutoConfig.from_pretrained(folder, num_labels=3)
    BertForQuestionAnswering(config).save_pretrained(folder)
    return folder


def _small_embedding(folder: Path) -> Path:
    from transformers import BertForQuestionAnswering

    write_model(folder, pretrained_model())
    model = BertForQuestionAnswering.from_pretrained(folder)
    model.resize_token_embeddings(1000)
    model.save_pretrained(folder)
    return folder


def _xlnet(folder: Path) -> Path:
    from transformers import XLNetConfig, XLNetForQuestionAnsweringSimple

    config = XLNetConfig(vocab_size=30522, d_model=32, n_layer=1, n_head=2, d_inner=64)
    XLNetForQuestionAnsweringSimple(config).save_pretrained(folder)
    shutil.copy(pretrained_model() / "tokenizer.json", folder)
    return folder


PROGRAMS = (
    Mistake(
        "requirements.txt replaces a package that another needs",
        r"huggingface-hub 0\.36\.0 \(requirements\.txt, line 2\) conflicts with transformers",
        {
            "train.py": "from transformers import Trainer\n",
            "requirements.txt": "--no-index\nhuggingface-hub==0.36.0\n",
            "huggingface_hub-0.36.0-py3-none-any.whl": wheel("huggingface_hub", "", "0.36.0"),
        },
    ),
    Mistake(
        "a requirement needs git",
        r"line 1 needs git.*archive/refs/tags/v0\.17\.1\.zip",
        {"train.py": "", "requirements.txt": "peft @ git+https://github.com/huggingface/peft@v0.17.1\n"},
    ),
    Mistake(
        "a store_true flag gets a value",
        r'fp16 is passed as "--fp16 True"',
        {"train.py": _PARSER + 'parser.add_argument("--fp16", action="store_true")\nparser.parse_args()\n'},
        {"fp16": "True"},
    ),
    Mistake(
        "a hyperparameter that the parser lacks",
        r"did you mean epochs",
        {"train.py": _PARSER + 'parser.add_argument("--epochs")\nparser.parse_args()\n'},
        {"epohcs": "1"},
    ),
    Mistake(
        "a relative import without a package",
        r"from model import Net",
        {"train.py": "from .model import Net\n", "model.py": "class Net: ...\n"},
    ),
    Mistake(
        "LOCAL_RANK in a program that runs once",
        r"BERTH_DISTRIBUTION to mpi",
        {"train.py": 'import os\nos.environ["LOCAL_RANK"]\n'},
    ),
    Mistake(
        ".cuda() in the image for CPUs",
        r"this image is for CPUs: build one with",
        {"train.py": "import torch\ntorch.ones(1).cuda()\n"},
    ),
    Mistake(
        "names that transformers 5 does not have, all at once",
        r"lacks \d+ names of this script.*profile add",
        {
            "train.py": "from transformers import TrainingArguments\n"
            'TrainingArguments("/tmp/x", evaluation_strategy="no", no_cuda=True, warmup_ratio=0.1)\n'
        },
    ),
    Mistake(
        "the user's own package in src/",
        r'put a line "\." into requirements\.txt',
        {
            "train.py": "import fraud_detector\n",
            "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n',
            "src/fraud_detector/__init__.py": "",
        },
    ),
    Mistake(
        "a channel that the job does not have",
        r"the job has no channels",
        {"train.py": 'import os\nos.environ["SM_CHANNEL_VALIDATION"]\n'},
        train={},
    ),
    Mistake(
        "no model, and a child's failure that the program ignores",
        r"/opt/ml/model is empty.*ValueError: label 7",
        {
            "train.py": 'import subprocess, sys\nsubprocess.run([sys.executable, "work.py"])\n',
            "work.py": 'raise ValueError("label 7")\n',
        },
    ),
    Mistake(
        "inputdataconfig.json is null",
        r"ends with exit code 0",
        {"train.py": ""},
        config={"inputdataconfig.json": "null"},
    ),
    Mistake(
        "the job sets a variable of the image's",
        r"BERTH_BACKEND",
        {"train.py": ""},
        environment={"BERTH_BACKEND": "nccl"},
    ),
)
RUN_QA = (
    Mistake(
        "checkpoints in another folder (checkpoint_local_path)",
        r"/opt/ml/kept",
        hyperparameters={"save_steps": "1"},
        config={"checkpointconfig.json": '{"LocalPath": "/opt/ml/kept"}'},
    ),
    Mistake(
        "questions without ids, and a README.md beside them",
        r"done: ",
        train={"train.json": questions(_without_id), "README.md": "about\n"},
    ),
    Mistake("ids that are floats", r"done: ", train={"train.json": questions(_float_id)}),
    Mistake("an empty text for no answer", r"version_2_with_negative", train={"train.json": questions(_empty_answer)}),
    Mistake(
        "the same with version_2_with_negative",
        r"without an answer",
        hyperparameters={"version_2_with_negative": "True"},
        train={"train.json": questions(_empty_answer)},
    ),
    Mistake(
        "evaluation data in the training channel",
        r"dev-v1\.1\.json",
        train={"train-v1.1.json": questions(), "dev-v1.1.json": json.dumps(excerpt("heldout", 8))},
    ),
    Mistake("a head with three outputs", r"3 outputs", model=_three_outputs),
    Mistake("a tokenizer with ids beyond the embedding", r"ids up to", model=_small_embedding),
    Mistake("XLNet", r"xlnet", model=_xlnet),
    Mistake(
        "another learning rate and length at a resume",
        r"learning_rate: 0\.0005 → 0\.0001",
        hyperparameters={"learning_rate": "5e-4", "save_steps": "1"},
        again={"learning_rate": "1e-4", "save_steps": "1", "max_steps": "4"},
    ),
)
