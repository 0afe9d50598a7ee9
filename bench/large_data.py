"""Train run_qa on more data than fits in its memory: copies of SQuAD's questions, in a control group with a limit.

Usage: python -m bench.large_data --train FILE [--gigabytes 2] [--memory 4] > bench/results/DATE-large-data.md

The copies have different ids and are in one file of JSON lines. Like a container's limit, the limit includes the page
cache. Needs root, a memory controller of control groups (version 1 or 2), and `make setup-tests`. Exit code 1 if the
job fails.
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import program, report, squad
from bench.jobs import run_qa
from berth.common.errors import UserError
from berth.local.demo import pretrained_model

HYPERPARAMETERS = {"max_steps": "20", "export_openvino": "false"}
_CONTROL = Path("/sys/fs/cgroup")


def read_questions(source: Path) -> list[dict[str, Any]]:
    """The questions of a file in SQuAD's layout, each with its context. UserError if there are none."""
    try:
        articles = json.loads(source.read_text("utf-8"))["data"]
        rows = [{**question, "context": context} for question, context in squad.pairs(articles)]
    except OSError as error:
        raise UserError(f"{source} can't be read ({error.strerror}): give --train a file in SQuAD's layout.") from None
    except (ValueError, LookupError, TypeError):
        rows = []
    if not rows:
        raise UserError(f"{source} has no articles: give --train an unpacked JSON file in SQuAD's layout.")
    return rows


def copy_to(path: Path, rows: Sequence[dict[str, Any]], size: int) -> None:
    """Write the questions repeatedly, each time with other ids, until the file has `size` bytes."""
    with path.open("w", encoding="utf-8") as file:
        for copy in itertools.count():
            for row in rows:
                file.write(json.dumps({**row, "id": f"{copy}-{row['id']}"}) + "\n")
            if file.tell() >= size:
                return


@contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """The folder of a control group with a memory limit in bytes; UserError if it can't be created."""
    old = _CONTROL / "memory"
    folder = (old if old.is_dir() else _CONTROL) / f"berth-large-data-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(str(limit))
    except OSError as error:
        raise UserError(f"control group {folder} can't be created ({error.strerror}): run this as root.") from error
    try:
        yield folder
    finally:
        folder.rmdir()


def peak_memory(group: Path) -> int:
    """The most bytes that a control group has used."""
    names = ("memory.max_usage_in_bytes", "memory.peak")
    return next((int((group / name).read_text()) for name in names if (group / name).is_file()), 0)


def render(options: argparse.Namespace, setting: str, job: run_qa.JobEnd, figures: dict[str, float]) -> str:
    """A page of the figures."""
    rows = {
        "training data, one file of JSON lines": f"{options.gigabytes * 1000:.0f} MB",
        "the job's memory limit, page cache included": f"{options.memory * 1000:.0f} MB",
        "peak memory without page cache": f"{job.memory / 1e6:.0f} MB",
        "peak memory with page cache": f"{figures['group'] / 1e6:.0f} MB",
        "seconds to the first step": f"{figures['first step']:.0f}",
        "total seconds": f"{job.seconds:.0f}",
    }
    log = [line for line in job.log.splitlines() if line.startswith(("train data", "step", "train_", "done"))]
    table = report.table(["", " "], [report.row(*row) for row in rows.items()])
    return report.page("More data than memory", [setting], *table, "", "Log of the job:", "", "```", *log, "```")


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("large_data", __doc__)
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="in SQuAD's layout, unpacked")
    parser.add_argument(
        "--gigabytes", type=program.above_zero, default=2.0, help="size of the data (default: %(default)s)"
    )
    parser.add_argument(
        "--memory", type=program.above_zero, default=4.0, help="memory limit in GB (default: %(default)s)"
    )
    options = parser.parse_args(words)
    rows, model = read_questions(options.train), pretrained_model()
    setting = program.setting("large_data", words)  # read the revision before the job: a commit may follow
    with control_group(int(options.memory * 1e9)) as group, tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        run_qa.lay_out(base, model, HYPERPARAMETERS, "train.jsonl", "")
        copy_to(base / "input/data/train/train.jsonl", rows, int(options.gigabytes * 1e9))
        figures, began = {"first step": 0.0}, time.monotonic()

        def note_first_step() -> bool:
            if not figures["first step"] and "\nstep 1 " in (base / "log").read_text():
                figures["first step"] = time.monotonic() - began
            return False

        joins = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$0" "$@"', *run_qa.COMMAND)
        job = run_qa.run(base, "RssAnon", note_first_step, joins)
        figures["group"] = peak_memory(group)
    if job.code:
        raise UserError(f"run_qa ended with {job.code}: {job.log[-1000:]}")
    print(render(options, f"{setting}; MiniLM, one rank.", job, figures))
    return 0


if __name__ == "__main__":
    program.end_with(main)
