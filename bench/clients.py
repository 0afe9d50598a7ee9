"""Every client and distribution of both SDKs in local mode: how each job ended.

Usage: python -m bench.clients [--image berth-train:cpu], or `make clients`; writes bench/results/DATE-clients.md.

The user's program joins the process group that its launcher describes, and every rank writes the group's size into the
model. run_qa writes the number of its ranks into its metrics. Exit code 1 if a job failed, or if another number of
ranks trained together than requested.
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
# Job → hosts, and ranks that must train together (1: each process alone).
Jobs = dict[str, tuple[int, int]]
_FRAMEWORK_JOBS: Jobs = {
    "no distribution, two hosts": (2, 1),
    "mpi of two on two hosts": (2, 4),
    "smdistributed.dataparallel, two hosts": (2, 2),
    "torch_distributed, two hosts": (2, 2),
    "pytorchddp of two": (1, 2),
}
_V2_CLIENTS: dict[str, Jobs] = {
    "Estimator": {
        "image_uri alone": (1, 1),
        "image_uri alone, processes_per_host 2 on two hosts": (2, 4),
        "entry_point .py": (1, 1),
        "entry_point .sh": (1, 1),
        "BERTH_DISTRIBUTION mpi, two hosts": (2, 2),
    },
    "PyTorch": {**_FRAMEWORK_JOBS, "dependencies": (1, 1), "torch_distributed of setup.py, two hosts": (2, 2)},
    "HuggingFace": {**_FRAMEWORK_JOBS, "smdistributed.dataparallel of git_config": (1, 2)},
}
V2 = {f"{client}, {way}": size for client, ways in _V2_CLIENTS.items() for way, size in ways.items()}
_TWO_PROCESSES = {"process_count_per_node": 2}
ALONE = "ModelTrainer, image alone"
# Job of SDK v3 → distribution, hosts, ranks that must train together.
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
        (" of two", _TWO_PROCESSES, 1, 2),
        (", two hosts", {}, 2, 2),
        (" of two on two hosts", _TWO_PROCESSES, 2, 4),
    )
}
# Hyperparameters of run_qa, which runs if the estimator has only an image.
SHORT = {"max_steps": 2, "max_seq_length": 128, "doc_stride": 32, "per_device_train_batch_size": 4}


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job. hosts, together: the requested numbers; processes: how many ran; ranks: the sizes of their groups."""

    client: str
    hosts: int
    together: int
    processes: int
    ranks: frozenset[int]
    seconds: float
    error: str = ""

    @property
    def right(self) -> bool:
        """Whether it succeeded with the requested number of ranks in one training."""
        expected = self.together if self.together > 1 else self.hosts
        return not self.error and (self.processes, self.ranks) == (expected, {self.together})

    def row(self) -> str:
        """The row of the table."""
        result = "ended well" if self.right else f"**{self.error or 'other ranks than requested'}**"
        ranks = ", ".join(map(str, sorted(self.ranks))) or "–"
        return report.row(self.client, self.hosts, result, self.processes, ranks, f"{self.seconds:.0f}")


def run_v2(image: str, work: Path) -> Iterator[JobResult]:
    """All jobs of SDK v2, in one process."""
    channels = {name: str(folder) for name, folder in small.write_channels(work / "data").items()}
    with moto_server() as s3:
        settings = {"image_uri": image, "work": str(work), "jobs": list(V2), "s3": s3}
        settings |= {"data": channels, "hyperparameters": SHORT}
        jobs, _ = sdk.run(PROGRAMS / "jobs_v2.py", json.dumps(settings), version=2, work=work)
    for name, result in jobs.items():
        yield job_result(f"v2 {name}", V2[name], result["seen"], result["seconds"], result.get("error", ""))


def run_v3(image: str, work: Path) -> Iterator[JobResult]:
    """All jobs of SDK v3, in a process per job; the seconds include the SDK's import."""
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
        written = [path for path in (root / "model").glob("*.json") if path.name.startswith(("seen-", "metrics."))]
        seen = [json.loads(path.read_text()) for path in written]
        yield job_result(f"v3 {name}", (hosts, together), seen, seconds, errors[name])


def job_result(client: str, requested: tuple[int, int], seen: Sequence[Any], seconds: float, error: str) -> JobResult:
    """The job, from the files that its processes wrote."""
    ranks = [size for each in seen for size in group_sizes(each)]
    return JobResult(client, *requested, len(ranks), frozenset(ranks), seconds, " ".join(error.split())[:200])


def group_sizes(written: Any) -> list[int]:
    """The size of its group for each process that a file describes; run_qa's metrics describe all ranks."""
    return [written["world_size"]] * written["world_size"] if "world_size" in written else [written["ranks"]]


def versions(image: str) -> str:
    """The versions of the image and the SDKs."""
    parts = [f"{image} ({str(find_built_image(engine.connect(), image).id)[7:19]})"]
    for version, package in _PACKAGES.items():
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        printed = subprocess.run([sdk.PYTHON[version], "-c", code], capture_output=True, text=True, check=True).stdout
        parts.append(f"{package} {printed.strip()}")
    return ", ".join(parts)


def make_page(versions: str, rows: Sequence[JobResult]) -> str:
    """The page of results."""
    setting = [
        f"`make clients`, {machine.this_cpu()}, {len(machine.parse_cores(None))} cores; {versions}.",
        "Ranks together: the size of a process' group, by a sum over all ranks; for `run_qa`, which runs if only an",
        "image is given, from its metrics. 1 is a process alone.",
        "Seconds: from the estimator to its model, for v3 including the SDK's import.",
    ]
    columns = ["client and way", "hosts", "result", "processes", "ranks together", "seconds"]
    table = report.table(columns, [row.row() for row in rows])
    return report.page("Every client and distribution in local mode", setting, *table) + "\n"


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("clients", __doc__)
    parser.add_argument("--image", default=f"berth-train:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    image = parser.parse_args(words).image
    if missing := [path for path in sdk.PYTHON.values() if not path.exists()]:
        raise UserError(f"{missing[0]} is missing: run `make clients`, which installs the SDKs first.")
    tested_versions = versions(image)
    rows: list[JobResult] = []
    clients: tuple[Callable[[str, Path], Iterator[JobResult]], ...] = (run_v2, run_v3)
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
    path.write_text(make_page(tested_versions, rows))
    print(f"{path.relative_to(pins.ROOT)}; the jobs' logs are in {LOG.relative_to(pins.ROOT)}")
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    program.end_with(main)
