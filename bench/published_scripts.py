"""transformers' own run_qa.py and run_glue.py on the training image, in two ranks and on two hosts: how each ended.

Usage: BERTH_PUBLISHED_SCRIPTS=FOLDER python -m bench.published_scripts [OWNER/NAME] [> bench/results/DATE-….md]

FOLDER is a checkout of OWNER/NAME that has transformers' examples/, of which nothing is kept here. A public copy whose
module has a name of its own (transformers_4573 of feisenyu/transformers_4573, which is v4.57) gets transformers written
back; nothing else of the text changes. Model and questions are those of the demo, so that no network is needed;
run_glue gets pairs of a question and a context, and says whether they belong together. Wants the training image and
some minutes; exit code 1 where a script failed, or where ranks that were started together trained by themselves.
"""

import csv
import json
import lzma
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import program
from bench.scripts import common
from berth.common import engine, labels
from berth.images import pins
from berth.images.selection import find_built_image
from berth.local.demo import pretrained_model
from berth.local.job import TrainingJob

VARIABLE = "BERTH_PUBLISHED_SCRIPTS"
CHECKOUT = "a checkout that has transformers' examples/"
IMAGE = f"berth-train:{pins.DEFAULT_PROFILE}"
RENAMED = re.compile(r"\btransformers_\d+\b")
BATCH, STEPS, TRAIN_ROWS, EVAL_ROWS = 4, 5, 60, 40
_TOGETHER = re.compile(r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)")
_FIGURE = re.compile(r"^\s*(eval_accuracy|eval_exact_match|eval_f1|train_loss)\s+= +(\S+)$")


@dataclass(frozen=True)
class Script:
    """A program of transformers' examples: the files that it consists of, of one folder, and its own arguments."""

    folder: str
    files: tuple[str, ...]
    suffix: str
    arguments: Mapping[str, str]


@dataclass(frozen=True)
class Way:
    """How a script is started: what an estimator's environment and instance_count say."""

    name: str
    ranks: int
    hosts: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


SCRIPTS = (
    Script(
        "examples/pytorch/question-answering",
        ("run_qa.py", "trainer_qa.py", "utils_qa.py"),
        "json",
        {"max_seq_length": "128", "doc_stride": "64"},
    ),
    Script("examples/pytorch/text-classification", ("run_glue.py",), "csv", {"max_seq_length": "64"}),
)
MPI = {"BERTH_DISTRIBUTION": "mpi"}
WAYS = (
    Way("one host, two ranks", 2, environment={**MPI, "BERTH_PROCESSES_PER_HOST": "2"}),
    Way("two hosts, a rank each", 2, hosts=2, environment=MPI),
)


def copy_script(script: Script, checkout: Path, code: Path) -> None:
    """The script as a source folder, under the module's own name; UserError where the checkout lacks a file."""
    code.mkdir()
    for name in script.files:
        text = common.read_script(checkout / script.folder / name, VARIABLE, CHECKOUT)
        (code / name).write_text(RENAMED.sub("transformers", text), "utf-8")


def question_rows(name: str, rows: int) -> list[dict[str, object]]:
    """Questions of the embedded excerpt, `train` or `heldout`, each with its context and its answers."""
    with lzma.open(pins.ROOT / "sample" / f"squad-{name}.json.xz", "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    found: list[dict[str, object]] = []
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"][:1]:
                answers = question["answers"]
                texts = {"text": [a["text"] for a in answers], "answer_start": [a["answer_start"] for a in answers]}
                row = {"id": question["id"], "title": article["title"], "context": paragraph["context"]}
                found.append({**row, "question": question["question"], "answers": texts})
    return found[:rows]


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """As run_qa.py reads them (.json), or as pairs for run_glue.py, every second one of two that don't belong together
    (.csv).
    """
    path.parent.mkdir()
    if path.suffix == ".json":
        path.write_text(json.dumps({"data": rows}), "utf-8")
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence1", "sentence2", "label"])
        for number, row in enumerate(rows):
            other = rows[number - number % 2]
            writer.writerow([row["question"], other["context"], int(number % 2 == 0)])


def ranks_together(log: Sequence[str]) -> int:
    """The ranks that shared a training, by the batch that Trainer says all of them have; 0 where it says none."""
    batches = [int(found[1].replace(",", "")) for line in log if (found := _TOGETHER.search(line))]
    return min(batches, default=0) // BATCH


def run(script: Script, way: Way, code: Path, scratch: Path, image: str = IMAGE) -> tuple[str, bool]:
    """One job to its end: its row of the table, and whether it did what it should."""
    data = {"train": TRAIN_ROWS, "validation": EVAL_ROWS}
    channels = {name: scratch / f"{name}.{script.suffix}" / f"{name}.{script.suffix}" for name in data}
    for (name, rows), excerpt in zip(data.items(), ("train", "heldout"), strict=True):
        if not channels[name].exists():
            write_rows(channels[name], question_rows(excerpt, rows))
    told = {
        **{"sagemaker_program": script.files[0], "model_name_or_path": "/opt/ml/input/data/model"},
        **{f"{name}_file": f"/opt/ml/input/data/{name}/{path.name}" for name, path in channels.items()},
        **{"do_train": "True", "do_eval": "True", "output_dir": "/opt/ml/model", "max_steps": str(STEPS)},
        **{"per_device_train_batch_size": str(BATCH), "save_strategy": "no", "disable_tqdm": "True"},
        **script.arguments,
    }
    job = TrainingJob(
        channels,
        output=scratch / f"out {script.files[0]} {way.name}",
        hosts=way.hosts,
        hyperparameters=told,
        environment={**way.environment, "HF_HUB_OFFLINE": "1"},
        model=pretrained_model(),
        code=code,
        timeout=900,
    )
    ended = common.run_job(job, image)
    together = ranks_together(ended.lines)
    figures = ", ".join(f"{found[1]} {found[2]}" for line in ended.lines if (found := _FIGURE.match(line)))
    cells = [script.files[0], way.name, str(ended), f"{together} of {way.ranks}", figures, f"{ended.seconds:.0f}"]
    return common.row(*cells), ended.exit_code == 0 and together == way.ranks


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("published_scripts", __doc__)
    parser.add_argument("source", nargs="?", metavar="OWNER/NAME", default="a checkout", help="for the record")
    source = parser.parse_args(words).source
    checkout = common.scripts_folder(VARIABLE, CHECKOUT)
    rows, good = [], True
    with tempfile.TemporaryDirectory(prefix="berth-published-") as folder:
        scratch = Path(folder)
        sources = [(script, scratch / f"code of {script.files[0]}") for script in SCRIPTS]
        for script, code in sources:
            copy_script(script, checkout, code)
        built = find_built_image(engine.connect(), IMAGE)
        for script, code in sources:
            for way in WAYS:
                row, well = run(script, way, code, scratch)
                rows.append(row)
                good &= well
    told = (
        f"`{VARIABLE}=FOLDER python -m bench.published_scripts`, scripts of {source}, "
        f"commit {common.commit(checkout)}: {STEPS} steps of {BATCH} rows a rank, {TRAIN_ROWS} rows, {EVAL_ROWS} to "
        f"evaluate, the demo's MiniLM; {IMAGE}, kit {labels.revision(built.labels)}, "
        f"{os.cpu_count()} cores"
    )
    columns = ["script", "started as", "ended with", "ranks together", "figures", "seconds"]
    common.print_page("transformers' own scripts on the training image", told, columns, rows)
    return 0 if good else 1


if __name__ == "__main__":
    program.end_with(main)
