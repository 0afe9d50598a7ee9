"""The failure reasons of jobs whose programs fail as users' programs do: runs bench/failing/ in one or two images.

Usage: python -m bench.failures [--only PROGRAM] [IMAGE …] > bench/results/DATE-failures.md

The default image is berth-train:cpu. To compare, pass the image from before a change first. A row says "yes" if exit
code, log and first line of /opt/ml/output/failure of the last image are as `bench.failing.cases` expects. Exit code 1
if a row says "no".
"""

import ast
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from bench import machine, program, report
from bench.failing import cases
from bench.failing.cases import CASES, Case
from bench.jobs.containers import host_options
from berth.common import engine
from berth.local import opt_ml

_FOLDER = Path(cases.__file__).parent
_LIMIT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class End:
    """A job's exit code, the first line of its failure file, and its log."""

    code: int
    sentence: str
    log: str


def run(client: DockerClient, image: str, case: Case, scratch: Path) -> End:
    """Run the program of `case` as a job of the image on one host."""
    root = Path(tempfile.mkdtemp(dir=scratch)) / "ml"
    hyperparameters = {"sagemaker_program": case.program, **case.hyperparameters}
    config = opt_ml.HostConfig("algo-1", ["algo-1"], "local", hyperparameters, {}, code=_FOLDER)
    options = host_options(root, config, case.environment)
    if case.memory:
        options |= {"mem_limit": case.memory, "memswap_limit": case.memory}
    container = client.containers.create(image, labels={"berth.test": "1"}, network_mode="none", **options)
    try:
        container.start()
        code = int(container.wait(timeout=_LIMIT_SECONDS)["StatusCode"])
        log = container.logs().decode(errors="replace")
    finally:
        container.remove(force=True, v=True)
    failure = root / "output/failure"
    sentence = failure.read_text(errors="replace").splitlines()[0] if failure.is_file() else ""
    return End(code, sentence, log)


def is_expected(case: Case, end: End) -> bool:
    """Whether exit code, reason and log are as expected."""
    return (
        end.code == case.code
        and end.sentence.startswith(case.prefix)
        and bool(end.sentence) == bool(case.code)
        and all(text in end.sentence for text in case.contains)
        and not any(text in end.sentence for text in case.excludes)
        and all(text in end.log for text in case.log)
    )


def row(case: Case, ends: Sequence[End]) -> str:
    """A row of the table."""
    about = _about(_FOLDER / case.program)
    name = f"`{case.program}`: {about}" if about else f"`{case.program}`"
    variables = "; ".join(f"{key}={value}" for key, value in case.environment.items())
    cells = [f"{end.code}: {end.sentence or '(no failure)'}" for end in ends]
    verdict = "yes" if is_expected(case, ends[-1]) else "no"
    return report.row(f"{name} ({variables})" if variables else name, *cells, verdict)


def _about(file: Path) -> str:
    """A program's docstring, or the comment in the second line of a shell script."""
    text = file.read_text()
    if file.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    comment = text.splitlines()[1]
    return comment.removeprefix("# ") if comment.startswith("# ") else ""


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("failures", __doc__)
    parser.add_argument("images", nargs="*", default=["berth-train:cpu"], metavar="IMAGE")
    parser.add_argument("--only", metavar="PROGRAM", help="only programs whose names begin with this")
    options = parser.parse_args(words)
    images: list[str] = options.images
    client = engine.connect()
    cases_run = [case for case in CASES if case.program.startswith(options.only or "")]
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases_run:
            ends = [run(client, image, case, Path(scratch)) for image in images]
            wrong += not is_expected(case, ends[-1])
            rows.append(row(case, ends))
    setting = [
        f"{program.setting('failures', words, client, machine.parse_cores(None))}.",
        "Each cell has the job's exit code and the first line of /opt/ml/output/failure.",
    ]
    table = report.table(["program", *images, "as expected"], rows)
    count = f"{len(rows) - wrong} of {len(rows)} as expected."
    print(report.page("Failure reasons of programs", setting, *table, "", count))
    return 1 if wrong else 0


if __name__ == "__main__":
    program.end_with(main)
