"""Where published scripts lie, a job that runs one to its end, and the page of results."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.common.errors import UserError
from berth.local.job import TrainingJob, run_training_job


@dataclass(frozen=True)
class Ended:
    """How a job ended: its reason is a line, `lines` are what its hosts logged, without the hosts' names."""

    exit_code: int
    reason: str
    lines: Sequence[str]
    seconds: float

    def __str__(self) -> str:
        return "exit code 0" if self.exit_code == 0 else f"exit code {self.exit_code}: {self.reason}"


def scripts_folder(variable: str, holds: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that a variable names; UserError, with what it should hold, for none."""
    if not environ.get(variable):
        raise UserError(f"{variable} names no folder: set it to {holds}.")
    return Path(environ[variable])


def read_script(path: Path, variable: str, holds: str) -> str:
    """A script's text; UserError, with what the variable's folder should hold, where it is not there."""
    if not path.is_file():
        raise UserError(f"{path} is not there: let {variable} name {holds}.")
    return path.read_text("utf-8")


def commit(checkout: Path) -> str:
    """The commit of a checkout, for the record."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def run_job(job: TrainingJob, image: str) -> Ended:
    """A job to its end; its log goes to standard error as well."""
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line.partition(" | ")[2])
        print(line, file=sys.stderr, flush=True)

    began = time.monotonic()
    ended = run_training_job(job, image=image, log=log, say=lambda line: print(line, file=sys.stderr))
    return Ended(ended.exit_code, ended.reason, lines, time.monotonic() - began)


def row(*cells: str) -> str:
    """A row of a table, in which a cell's own bars do not end it."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def print_page(title: str, told: str, columns: Sequence[str], rows: Sequence[str]) -> None:
    """A page of results: a title with the day, a paragraph, a table."""
    print(f"# {title}, {time.strftime('%Y-%m-%d')}\n")
    print(f"{told}\n")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    print("\n".join(rows))
