"""What a job says of programs that fail as users' do: each of bench/failing/ run in images side by side.

Usage: python -m bench.failures [--only PROGRAM] [IMAGE …] > bench/results/DATE-failures.md

An image is berth-train:cpu if none is named; with two, the first is the one before a change. A row says "yes" where the
last image's first line of /opt/ml/output/failure is what `bench.failing.cases` or `more_cases` expects. Ends with exit
code 1 if one is not.
"""

import ast
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from docker import DockerClient

from bench import machine, program
from bench.failing import cases
from bench.failing.cases import CASES, Case
from bench.failing.more_cases import MORE
from bench.jobs import one_host
from bench.jobs.one_host import End, HostJob
from berth.common import engine

_FOLDER = Path(cases.__file__).parent
_TABLES = {"What its author tried": CASES, "Chosen after the module was finished": MORE}


def run(client: DockerClient, image: str, case: Case, scratch: Path) -> End:
    """One job of the image on one host, with the program of `case` as its own."""
    hyperparameters = {"sagemaker_program": case.program, **case.hyperparameters}
    job = HostJob(hyperparameters, _FOLDER, environment=case.environment, memory=case.memory)
    return one_host.run(client, image, job, scratch)


def right(case: Case, end: End) -> bool:
    """Whether the job ended and said what it should."""
    return (
        end.code == case.code
        and end.sentence.startswith(case.begins)
        and bool(end.sentence) == bool(case.code)
        and all(text in end.sentence for text in case.holds)
        and not any(text in end.sentence for text in case.lacks)
        and all(text in end.log for text in case.log)
    )


def row(case: Case, ends: Sequence[End]) -> str:
    """A line of the table."""
    about = _about(_FOLDER / case.program)
    what = f"`{case.program}`: {about}" if about else f"`{case.program}`"
    given = "; ".join(f"{name}={value}" for name, value in case.environment.items())
    cells = [f"{end.code}: {end.sentence or '(no failure)'}".replace("|", "\\|") for end in ends]
    return (
        f"| {what}{f' ({given})' if given else ''} | {' | '.join(cells)} | {'yes' if right(case, ends[-1]) else 'no'} |"
    )


def _about(file: Path) -> str:
    """A program's docstring, or the comment below the first line of a shell script."""
    text = file.read_text()
    if file.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    comment = text.splitlines()[1]
    return comment.removeprefix("# ") if comment.startswith("# ") else ""


def main(words: Sequence[str]) -> int:
    """Print the tables; 1 if a row of the last image is not as expected."""
    parser = program.make_parser("failures", __doc__)
    parser.add_argument("images", nargs="*", default=["berth-train:cpu"], metavar="IMAGE")
    parser.add_argument("--only", metavar="PROGRAM", help="the programs whose names begin so")
    options = parser.parse_args(words)
    images: list[str] = options.images
    client = engine.connect()
    print(f"# What a job says of programs that fail, {date.today()}\n")
    print(program.setting("failures", words, client, machine.cores_of(None)) + ".")
    print("Each cell has the job's exit code and the first line of /opt/ml/output/failure.")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for title, cases_of_table in _TABLES.items():
            chosen = [case for case in cases_of_table if case.program.startswith(options.only or "")]
            print(f"\n## {title}\n\n| program | {' | '.join(images)} | as expected |\n|---|{'---|' * len(images)}---|")
            wrong_here = 0
            for case in chosen:
                ends = [run(client, image, case, Path(scratch)) for image in images]
                wrong_here += not right(case, ends[-1])
                print(row(case, ends), flush=True)
            print(f"\n{len(chosen) - wrong_here} of {len(chosen)} as expected.")
            wrong += wrong_here
    return 1 if wrong else 0


if __name__ == "__main__":
    program.end_with(main)
