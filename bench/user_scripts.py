"""Published scripts as jobs of the training images: do they still run?

Usage: python -m bench.user_scripts FOLDER [--only WORD] [> bench/results/DATE-user-scripts.md]

FOLDER contains checkouts named SOURCE@COMMIT; bench/scripts/table.py lists the scripts with the expected results:
transformers' examples, Hugging Face's notebooks, and scripts for smdistributed from AWS and from a book. The scripts
are unchanged except for calls of CUDA and S3. Small doubles (bench/doubles) replace packages that the image lacks. A
run is as expected if it succeeds, its ranks train together, and its losses are those of one process; or if it fails
for the known reason. Exit code 1 if a run is not as expected. Needs the training images of cpu and cpu-hf4.
"""

import hashlib
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import program, report
from bench.scripts import data, table, tensor_parallel
from bench.scripts.table import AWS, GUIDE, NOT_RUN, OLDER, PACKT, Run, Script
from berth.common import engine
from berth.common.errors import UserError
from berth.images.pins import pins
from berth.images.selection import find_built_image
from berth.local.demo import pretrained_model
from berth.local.train.job import TrainingJob, run_training_job

RUNS = (*table.RUNS, *tensor_parallel.RUNS)
COLUMNS = ["script", "started as", "expected", "ended with", "as expected", "figures", "s"]
DOUBLES = pins.ROOT / "bench/doubles/packages"
APART = "the ranks' weights differ: "
"""In the log's last line if each rank trained a different model."""
_TOTAL_BATCH = re.compile(r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)")
_TIME_LIMIT = 1200.0
_TOLERANCE = 0.02


@dataclass(frozen=True)
class JobEnd:
    """How a job ended. lines: its log, without the hosts' names."""

    exit_code: int
    reason: str
    lines: Sequence[str]
    seconds: float


def read_script(path: Path) -> str:
    if not path.is_file():
        raise UserError(
            f"{path} does not exist: bench/scripts/table.py lists the checkouts that the folder must contain."
        )
    return path.read_text("utf-8")


def blob(content: bytes) -> str:
    """git's hash of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def write_code(script: Script, program: str, scripts: Path, code: Path) -> tuple[str, int]:
    """Write the source folder of a run. Returns the name of its program and the number of edited places."""
    source = scripts / script.source / script.path
    text = read_script(source)
    if not blob(source.read_bytes()).startswith(script.blob):
        raise UserError(f"{source} differs from {script.repository} at {script.source}: fetch it again.")
    if script.block:
        text = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[script.block - 1]
    texts = {script.name: text, **{name: read_script(source.parent / name) for name in script.helpers}}
    code.mkdir(parents=True)
    places = 0
    for name, content in texts.items():
        for old, new in script.edits:
            places += content.count(old)
            content = content.replace(old, new)
        (code / name).write_text(content, "utf-8")
        # Copy only the doubles that the script imports, because transformers uses torchvision if it is installed.
        for double in DOUBLES.iterdir():
            if script.source.startswith((AWS, GUIDE, PACKT)) and double.name in content:
                shutil.copytree(double, code / double.name, dirs_exist_ok=True)
    if program:
        (code / "start_script.py").write_text(program, "utf-8")
    return "start_script.py" if program else script.name, places


def run_job(run: Run, scripts: Path, data_folder: Path, folder: Path, image: str) -> tuple[JobEnd, int]:
    """Run the job with its files in `folder`. Returns its end and the number of edited places of the script."""
    name, places = write_code(run.script, run.program, scripts, folder / "code")
    job = TrainingJob(
        {path.name: path for path in sorted((data_folder / run.data).iterdir())},
        output=folder / "out",
        hosts=run.hosts,
        hyperparameters={"sagemaker_program": name, **run.arguments, **run.hyperparameters},
        environment=run.environment,
        model=pretrained_model() if run.model == "demo" else data_folder / run.model if run.model else None,
        code=folder / "code",
        checkpoints=data_folder.parent / run.checkpoints if run.checkpoints else None,
        timeout=_TIME_LIMIT,
    )
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line.partition(" | ")[2])
        print(line, file=sys.stderr, flush=True)

    began = time.monotonic()
    ended = run_training_job(job, image=image, log=log, say=lambda line: print(line, file=sys.stderr))
    return JobEnd(ended.exit_code, ended.reason, lines, time.monotonic() - began), places


def replicas_together(run: Run, lines: Sequence[str]) -> int:
    """The number of replicas in one training, from the batch size that Trainer logs; 0 if it logs none."""
    batches = [int(match[1].replace(",", "")) for line in lines if (match := _TOTAL_BATCH.search(line))]
    return min(batches, default=0) // run.batch


def find_problems(run: Run, ended: JobEnd) -> list[str]:
    """Everything that is not as expected."""
    if run.fails:
        return [] if ended.exit_code and re.search(run.fails, ended.reason) else ["should fail with another reason"]
    if ended.exit_code:
        return ["failed"]
    problems = []
    if run.batch and replicas_together(run, ended.lines) != run.replicas:
        problems.append(f"{replicas_together(run, ended.lines)} of {run.replicas} replicas trained together")
    if any(APART in line for line in ended.lines) != run.alone:
        problems.append("the weights should differ" if run.alone else "the weights differ")
    figures = find_figures(run, ended.lines)
    for loss in run.losses:
        if not any(math.isclose(loss, figure, rel_tol=_TOLERANCE) for figure in figures):
            problems.append(f"the loss {loss} of one process is missing")
    return problems


def find_figures(run: Run, lines: Sequence[str]) -> list[float]:
    return [float(figure) for line in lines for figure in re.findall(run.figures, line)]


def make_row(run: Run, ended: JobEnd, places: int, problems: Sequence[str]) -> str:
    """The row of a run."""
    edited = f"{places} places edited" if places else ""
    figures = find_figures(run, ended.lines)
    return report.row(
        ", ".join(filter(None, [f"{run.script.source} {run.script.path.strip()}", edited, run.note])),
        run.description,
        f"fails: `{run.fails}`" if run.fails else "ends, weights differ" if run.alone else "ends",
        f"exit code {ended.exit_code}{': ' if ended.reason else ''}{ended.reason[:300]}",
        f"**no**: {'; '.join(problems)}" if problems else "as expected",
        f"{figures[0]:g} to {figures[-1]:g}" if figures else "none",
        f"{ended.seconds:.0f}",
    )


def run_all(scripts: Path, runs: Sequence[Run], images: Mapping[str, str]) -> tuple[list[str], int]:
    """The row of every run, and the number of runs that are not as expected. images: name → id."""
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory(prefix="berth-user-scripts-") as scratch:
        data_folder = Path(scratch, "data")
        data.make_data(data_folder, images.get(OLDER, ""))
        for number, run in enumerate(runs):
            ended, places = run_job(run, scripts, data_folder, Path(scratch, str(number)), images[run.image])
            problems = find_problems(run, ended)
            wrong += bool(problems)
            rows.append(make_row(run, ended, places, problems))
            print(rows[-1], file=sys.stderr, flush=True)
    return rows, wrong


def find_images(runs: Sequence[Run]) -> dict[str, str]:
    """The ids of the images that the runs need, so that a build during the runs does not change them."""
    client = engine.connect()
    return {name: str(find_built_image(client, name).id) for name in sorted({run.image for run in runs})}


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("user_scripts", __doc__)
    parser.add_argument("folder", type=Path, help="the folder with the checkouts")
    parser.add_argument("--only", metavar="WORD", default="", help="only scripts whose rows contain this text")
    options = parser.parse_args(words)
    runs = [
        run for run in RUNS if options.only in f"{run.script.source} {run.script.path} {run.description} {run.note}"
    ]
    for run in runs:
        read_script(options.folder / run.script.source / run.script.path)
    images = find_images(runs)
    rows, wrong = run_all(options.folder, runs, images)
    used = " and ".join(f"{name} ({image[7:19]})" for name, image in images.items())
    count = f"{len(rows) - wrong} of {len(rows)} as expected"
    setting = f"`python -m bench.user_scripts FOLDER`, {used}, {os.cpu_count()} cores. {count}."
    not_run = [f"- {script.strip()}: {reason}." for script, reason in NOT_RUN.items()]
    lines = [*report.table(COLUMNS, rows), "", "Not run:", "", *not_run]
    print(report.page("Published scripts on the training images", [setting], *lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    program.end_with(main)
