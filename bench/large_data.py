"""run_qa on more data than its memory holds: SQuAD copied to so many bytes, in a control group with a limit.

Usage: python -m bench.large_data --train FILE [--gigabytes 2] [--memory 4] > bench/results/DATE-large-data.md

The copies have ids of their own and stand in one file. The limit counts the pages of files, too, as that of a
container does. Wants root, a memory controller of control groups (either version), and `make setup-tests`. Each copy of
30 MB takes 25 s of a core. Ends with exit code 1 if the job fails.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bench import program
from bench.machine import this_cpu
from berth.common.errors import UserError
from berth.images import pins
from berth.images.revision import read_revision
from berth.local.demo import pretrained_model

STEPS = 20
_CONTROL = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Ran:
    """A job: its log, seconds to the first step's line and to the end, and the most bytes of its own memory (`own`:
    without pages of files) and of its control group.
    """

    log: Sequence[str]
    first_step: float
    seconds: float
    own: int
    group: int
    data: int


def read_articles(source: Path) -> list[str]:
    """The articles of a file in SQuAD's layout, each as JSON; UserError for a file that has none."""
    try:
        articles = [json.dumps(article) for article in json.loads(source.read_text("utf-8"))["data"]]
    except OSError as error:
        raise UserError(f"{source} can't be read ({error.strerror}): give --train a file in SQuAD's layout.") from None
    except (ValueError, LookupError, TypeError):
        articles = []
    if not articles:
        raise UserError(f"{source} has no articles: give --train an unpacked JSON file in SQuAD's layout.")
    return articles


def copy_to(path: Path, articles: Sequence[str], size: int) -> None:
    """Write the articles over and over, each time with other ids, until the file has so many bytes."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"version": "1.1", "data": [')
        copy = 0
        while file.tell() < size:
            for number, article in enumerate(articles):
                file.write(", " if copy or number else "")
                file.write(article.replace('"id": "', f'"id": "{copy}-'))
            copy += 1
        file.write("]}")


@contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """The folder of a control group of that many bytes of memory; UserError where none can be made."""
    old = _CONTROL / "memory"
    folder = (old if old.is_dir() else _CONTROL) / f"berth-large-data-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(str(limit))
    except OSError as error:
        raise UserError(f"{folder} can't be made a control group ({error.strerror}): run this as root.") from error
    try:
        yield folder
    finally:
        folder.rmdir()


def most_of(group: Path) -> int:
    """The most memory that a group had, in bytes."""
    names = ("memory.max_usage_in_bytes", "memory.peak")
    return next((int((group / name).read_text()) for name in names if (group / name).is_file()), 0)


def train(base: Path, group: Path) -> Ran:
    """Run the job in `base`; UserError if it fails."""
    began = time.monotonic()
    own, log = 0, base / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$0" -m berth.train.run_qa', sys.executable],
            env=os.environ | {"SAGEMAKER_BASE_DIR": str(base), "HF_HUB_OFFLINE": "1", "TMPDIR": str(base)},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    first_step = 0.0
    try:
        while process.poll() is None:
            time.sleep(0.5)
            own = max(own, _own(process.pid))
            if not first_step and "\nstep 1 " in log.read_text():
                first_step = time.monotonic() - began
    finally:
        process.kill()
        process.wait()
    said = log.read_text().splitlines()
    if process.returncode:
        raise UserError(f"run_qa ended with {process.returncode}: {said[-1] if said else 'no line of a log'}")
    data = (base / "input/data/train/train.json").stat().st_size
    return Ran(said, first_step, time.monotonic() - began, own, most_of(group), data)


def _own(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("RssAnon:")), 0)


def render(title: str, setting: str, limit: int, ran: Ran) -> str:
    """A page of the figures."""
    return "\n".join(
        [
            f"# {title}",
            "",
            setting,
            "",
            "| | |",
            "|---|---:|",
            f"| training data, one JSON file | {ran.data / 1e6:.0f} MB |",
            f"| limit of the job's memory, pages of files included | {limit / 1e6:.0f} MB |",
            f"| most memory of its own | {ran.own / 1e6:.0f} MB |",
            f"| most memory with pages of files | {ran.group / 1e6:.0f} MB |",
            f"| seconds to the first step | {ran.first_step:.0f} |",
            f"| seconds in all | {ran.seconds:.0f} |",
            "",
            "What the job said:",
            "",
            "```",
            *(line for line in ran.log if line.startswith(("train data", "step", "train_", "done"))),
            "```",
        ]
    )


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("large_data", __doc__)
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="in SQuAD's layout, unpacked")
    parser.add_argument("--gigabytes", type=program.above_zero, default=2.0, help="of data (default: %(default)s)")
    parser.add_argument("--memory", type=program.above_zero, default=4.0, help="the limit, GB (default: %(default)s)")
    options = parser.parse_args(words)
    articles, model = read_articles(options.train), pretrained_model()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    versions += f", kit {read_revision(pins.ROOT)}"  # as it is now, for a commit may come meanwhile
    limit = int(options.memory * 1e9)
    with control_group(limit) as group, tempfile.TemporaryDirectory(prefix="berth-large-data-") as scratch:
        base = Path(scratch)
        (base / "input/config").mkdir(parents=True)
        (base / "input/data/train").mkdir(parents=True)
        (base / "input/data/model").symlink_to(model)
        settings = {"max_steps": str(STEPS), "export_openvino": "false"}
        (base / "input/config/hyperparameters.json").write_text(json.dumps(settings))
        copy_to(base / "input/data/train/train.json", articles, int(options.gigabytes * 1e9))
        ran = train(base, group)
    said = f"--train {options.train.name} --gigabytes {options.gigabytes:g} --memory {options.memory:g}"
    setting = (
        f"`python -m bench.large_data {said}`, MiniLM, {STEPS} steps of 8 windows, one rank, {this_cpu()}, {versions}."
    )
    print(render(f"More data than memory, {time.strftime('%Y-%m-%d')}", setting, limit, ran))
    return 0


if __name__ == "__main__":
    program.end_with(main)
