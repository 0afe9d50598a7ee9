"""Every client and every way of theirs to ask for a job, run in local mode by the real SDKs: how each ended.

Usage: python -m bench.clients [--image berth-train:cpu], or `make clients`; writes bench/results/DATE-clients.md.

A user's program joins the group that its launcher describes, and each of its ranks leaves what it saw in the model;
run_qa's first rank leaves how many trained.
Ends with exit code 1 if a job failed, or if other ranks trained together than were asked for.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine, program, report
from bench.jobs import small
from berth.common import engine
from berth.common.errors import UserError
from berth.images.pins import pins
from berth.images.selection import find_built_image
from tests.local_mode import sdk
from tests.local_mode.conftest import remove_what_the_sdk_left
from tests.local_mode.moto_here import moto_server

PROGRAMS = pins.ROOT / "tests" / "local_mode"
LOG = pins.ROOT / ".venv" / "clients.log"
_PACKAGES = {2: "sagemaker", 3: "sagemaker-train"}
# What each job of SDK v2 asks for: hosts, and ranks that are to train together (1: every process by itself).
Asked = dict[str, tuple[int, int]]
_OF_FRAMEWORKS: Asked = {
    "no distribution, two hosts": (2, 1),
    "mpi of two on two hosts": (2, 4),
    "smdistributed.dataparallel, two hosts": (2, 2),
    "torch_distributed, two hosts": (2, 2),
    "pytorchddp of two": (1, 2),
}
_OF_V2: dict[str, Asked] = {
    "Estimator": {
        "image_uri alone": (1, 1),
        "image_uri alone, processes_per_host 2 on two hosts": (2, 4),
        "entry_point .py": (1, 1),
        "entry_point .sh": (1, 1),
        "BERTH_DISTRIBUTION mpi, two hosts": (2, 2),
    },
    "PyTorch": {**_OF_FRAMEWORKS, "dependencies": (1, 1), "torch_distributed of setup.py, two hosts": (2, 2)},
    "HuggingFace": {**_OF_FRAMEWORKS, "smdistributed.dataparallel of git_config": (1, 2)},
}
V2 = {f"{client}, {way}": asked for client, ways in _OF_V2.items() for way, asked in ways.items()}
_OF_TWO = {"process_count_per_node": 2}
ALONE = "ModelTrainer, image alone"
# Of SDK v3: the distribution, hosts, ranks together.
V3: dict[str, tuple[list[Any] | None, int, int]] = {
    ALONE: (None, 1, 1),
    f"{ALONE}, two hosts": (None, 2, 2),
    "ModelTrainer, source code": (None, 1, 1),
    "ModelTrainer, source code, two hosts": (None, 2, 1),
} | {
    f"ModelTrainer, {name}{way}": ([name, fields], hosts, together)
    for name in ("Torchrun", "MPI")
    for way, fields, hosts, together in (
        ("", {}, 1, 1),
        (" of two", _OF_TWO, 1, 2),
        (", two hosts", {}, 2, 2),
        (" of two on two hosts", _OF_TWO, 2, 4),
    )
}
# Of run_qa, which an image alone runs.
SHORT = {"max_steps": 2, "max_seq_length": 128, "doc_stride": 32, "per_device_train_batch_size": 4}


@dataclass(frozen=True, slots=True)
class Ended:
    """One job: `hosts` and `together` were asked for; `processes` ran, each in a group of so many `ranks`."""

    client: str
    hosts: int
    together: int
    processes: int
    ranks: frozenset[int]
    seconds: float
    error: str = ""

    @property
    def right(self) -> bool:
        """Whether it ended well, with as many ranks in one training as were asked for."""
        expected = self.together if self.together > 1 else self.hosts
        return not self.error and (self.processes, self.ranks) == (expected, {self.together})

    def row(self) -> str:
        """Its row of the table."""
        result = "ended well" if self.right else f"**{self.error or 'other ranks than were asked for'}**"
        ranks = ", ".join(map(str, sorted(self.ranks))) or "–"
        return f"| {self.client} | {self.hosts} | {result} | {self.processes} | {ranks} | {self.seconds:.0f} |"


def of_v2(image: str, work: Path) -> Iterator[Ended]:
    """All jobs of SDK v2, in one process of its own."""
    channels = {name: str(folder) for name, folder in small.write_channels(work / "data").items()}
    with moto_server() as s3:
        told = {"image_uri": image, "work": str(work), "jobs": list(V2), "s3": s3}
        told |= {"data": channels, "hyperparameters": SHORT}
        jobs, _ = sdk.run(PROGRAMS / "jobs_v2.py", json.dumps(told), version=2, work=work)
    for name, done in jobs.items():
        hosts, together = V2[name]
        yield ended(f"v2 {name}", (hosts, together), done["seen"], done["seconds"], done.get("error", ""))


def of_v3(image: str, work: Path) -> Iterator[Ended]:
    """All jobs of SDK v3, with a process for each: its seconds are with the SDK's import."""
    source = work / "source"
    source.mkdir()
    (source / "together.py").write_text((PROGRAMS / "together.py").read_text())
    code = {"source_code": {"source_dir": str(source), "entry_script": "together.py"}}
    channels = {name: str(folder) for name, folder in small.write_channels(work / "data").items()}
    for number, (name, (distributed, hosts, together)) in enumerate(V3.items()):
        root = work / f"root-{number}"
        job = {"name": name, "image_uri": image, "root": str(root), "instance_count": hosts}
        job |= {"inputs": channels, "hyperparameters": SHORT} if name.startswith(ALONE) else code
        if distributed:
            job["distributed"] = distributed
        began = time.monotonic()
        errors, _ = sdk.run(PROGRAMS / "model_trainer.py", json.dumps([job]), version=3, work=work)
        seconds = time.monotonic() - began
        left = [path for path in (root / "model").glob("*.json") if path.name.startswith(("seen-", "metrics."))]
        seen = [json.loads(path.read_text()) for path in left]
        yield ended(f"v3 {name}", (hosts, together), seen, seconds, errors[name])


def ended(client: str, asked: tuple[int, int], seen: Sequence[Any], seconds: float, error: str) -> Ended:
    """A job by what its processes left, of run_qa the first for all of them."""
    ranks = [together for each in seen for together in groups(each)]
    return Ended(client, *asked, len(ranks), frozenset(ranks), seconds, " ".join(error.split())[:200].replace("|", "/"))


def groups(left: Any) -> list[int]:
    """Of how many a group was, by process that `left` speaks of."""
    return [left["world_size"]] * left["world_size"] if "world_size" in left else [left["ranks"]]


def versions(image: str) -> str:
    """The image and the SDKs, each with its version."""
    found = [f"{image} ({str(find_built_image(engine.connect(), image).id)[7:19]})"]
    for version, package in _PACKAGES.items():
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        printed = subprocess.run([sdk.PYTHON[version], "-c", code], capture_output=True, text=True, check=True).stdout
        found.append(f"{package} {printed.strip()}")
    return ", ".join(found)


def make_page(versions: str, rows: Sequence[Ended]) -> str:
    """The whole result, in Markdown."""
    setting = [
        f"`make clients`, {machine.this_cpu()}, {len(machine.cores_of(None))} cores; {versions}.",
        "Ranks together: of how many a process' group was, by a sum over all ranks; of `run_qa`, which an",
        "image alone runs, by its metrics. 1 is a process by itself.",
        "Seconds are from the estimator to its model, for v3 with the SDK's import.",
    ]
    columns = ["client and way", "hosts", "result", "processes", "ranks together", "seconds"]
    table = report.table(columns, [row.row() for row in rows])
    return report.page("Every client and way in local mode", setting, *table) + "\n"


def main(words: Sequence[str]) -> int:
    """Run all, write the table."""
    parser = program.make_parser("clients", __doc__)
    parser.add_argument("--image", default=f"berth-train:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    image = parser.parse_args(words).image
    if missing := [path for path in sdk.PYTHON.values() if not path.exists()]:
        raise UserError(f"{missing[0]} is not there: run `make clients`, which installs the SDKs first.")
    found = versions(image)
    rows: list[Ended] = []
    clients: tuple[Callable[[str, Path], Iterator[Ended]], ...] = (of_v2, of_v3)
    with LOG.open("w") as log, contextlib.redirect_stdout(log):  # the SDKs' and the containers' logs
        for client in clients:
            with tempfile.TemporaryDirectory() as work:
                try:
                    for row in client(image, Path(work)):
                        print(row.row(), file=sys.stderr)
                        rows.append(row)
                finally:
                    remove_what_the_sdk_left(engine.connect(), Path(work))
    path = pins.ROOT / "bench" / "results" / f"{time.strftime('%Y-%m-%d')}-clients.md"
    path.write_text(make_page(found, rows))
    print(f"{path.relative_to(pins.ROOT)}; the jobs' logs are in {LOG.relative_to(pins.ROOT)}")
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    program.end_with(main)
