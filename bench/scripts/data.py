"""Data for user scripts: questions and sentence pairs from the embedded excerpt, tokens, films and images."""

import csv
import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import squad
from berth.common.errors import UserError
from berth.contract.archive import unpack
from berth.local.demo import pretrained_model
from berth.local.train.job import TrainingJob, run_training_job

ROWS = {"train": ("train", 60), "validation": ("heldout", 40)}
"""Channel → part of the excerpt, number of questions."""


def question_rows(name: str, rows: int) -> list[dict[str, object]]:
    """The first question of each paragraph of the excerpt's `train` or `heldout`, with context and answers."""
    questions: list[dict[str, object]] = []
    for article in squad.read_articles(squad.excerpt_file(name)):
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"][:1]:
                answers = question["answers"]
                texts = {"text": [a["text"] for a in answers], "answer_start": [a["answer_start"] for a in answers]}
                row = {"id": question["id"], "title": article["title"], "context": paragraph["context"]}
                questions.append({**row, "question": question["question"], "answers": texts})
    return questions[:rows]


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write .json for run_qa.py, or sentence pairs in .csv for run_glue.py, half of which belong together."""
    path.parent.mkdir(parents=True)
    if path.suffix == ".json":
        path.write_text(json.dumps({"data": rows}), "utf-8")
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence1", "sentence2", "label"])
        for number, row in enumerate(rows):
            other = rows[number - number % 2]
            writer.writerow([row["question"], other["context"], int(number % 2 == 0)])


def write_tokens(folder: Path) -> None:
    """Write tokens in the layout that train_gpt_simple.py reads."""
    for seed, name in enumerate(("train", "val", "test")):
        chance = random.Random(seed)
        (folder / name).mkdir(parents=True)
        with gzip.open(folder / name / "tokens.json.gz", "wt", encoding="utf-8") as file:
            for _ in range(64):
                first = chance.randrange(100)
                tokens = [(first + 3 * place) % 100 for place in range(32)]
                file.write(json.dumps({"input_ids": tokens, "attention_mask": [1] * 32}) + "\n")


def make_in_image(folder: Path, image: str) -> None:
    """Run bench/scripts/notebook_data.py in the image, to create the folders text, image, vit and gptj."""
    code = folder / "code"
    code.mkdir()
    (code / "make.py").write_text(Path(__file__).with_name("notebook_data.py").read_text("utf-8"), "utf-8")
    program = {"sagemaker_program": "make.py"}
    job = TrainingJob({}, folder / "out", hyperparameters=program, model=pretrained_model(), code=code, timeout=300)
    result = run_training_job(job, image=image, log=lambda line: None, say=lambda line: None)
    if result.exit_code != 0:
        raise UserError(f"{image} could not make the notebooks' data: {result.reason}")
    unpack(folder / "out" / "model.tar.gz", folder / "made")
    for path in (folder / "made").iterdir():
        path.rename(folder / path.name)


def make_data(folder: Path, older_image: str) -> None:
    """Create all data in `folder`: a folder per kind, with a folder per channel.

    older_image: an image with transformers 4.26, which creates films and images; without it they are skipped.
    """
    for kind in ("json", "csv"):
        for name, (part, rows) in ROWS.items():
            write_rows(folder / kind / name / f"{name}.{kind}", question_rows(part, rows))
    write_tokens(folder / "tokens")
    if older_image:
        make_in_image(folder, older_image)
