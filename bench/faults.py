"""Faults in jobs on several hosts: which reason each host reports, and how soon.

Usage: python -m bench.faults [--hosts 2 4] > bench/results/DATE-faults.md

Each fault is caused in a job under mpirun with one rank per host, in containers of the image. Seconds count from the
fault to the exit of a host. For a host that never starts they count from the rendezvous' time-out, for a host with an
invalid setting from the first container's start. Exit code 1 if a surviving host did not report the cause within 15 s.
Needs root, to mount a small disk.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from docker import DockerClient

from bench import program, report
from bench.jobs.containers import await_end, await_text, host_options, moment, started_hosts
from bench.jobs.fault_table import COLUMNS, FAULTS, PROGRAM, RENDEZVOUS_LIMIT, Fault, HostEnd, right, rows
from berth.common import engine
from berth.common.errors import UserError
from berth.images.pins import pins
from berth.images.selection import find_built_image
from berth.local import opt_ml

_READY_WITHIN, _ENDS_WITHIN = 90.0, 60.0


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk of 1 MB at `folder`."""
    process = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if process.returncode:
        raise UserError(f"a small disk can't be mounted ({process.stderr.decode().strip()}): run this as root.")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class FaultBench:
    """Jobs of the image; all files are in `scratch`."""

    def __init__(self, client: DockerClient, image: str, scratch: Path) -> None:
        self.client = client
        self.image = image
        self.scratch = scratch

    def run(self, fault: Fault, hosts: int) -> list[HostEnd]:
        """Run a job, cause the fault, and return how each host ended."""
        names = opt_ml.host_names(hosts)
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        options = {name: self._options(fault, folder, name, names) for name in names}
        present = [name for name in names if name not in fault.absent]
        with self._small_disks(fault, folder):
            with started_hosts(self.client, self.image, present, options.__getitem__) as containers:
                since = self._cause(fault, folder, containers)
                for container in containers.values():
                    await_end(container, _ENDS_WITHIN)
                return [
                    HostEnd(
                        name,
                        moment(container, "FinishedAt") - since,
                        int(container.attrs["State"]["ExitCode"]),
                        _first_line(folder / name / "output/failure"),
                        killed=name in fault.kills,
                    )
                    for name, container in containers.items()
                ]

    def _options(self, fault: Fault, folder: Path, name: str, names: Sequence[str]) -> dict[str, Any]:
        code = folder / f"code-{name}"
        code.mkdir()
        (code / "train.py").write_text(PROGRAM.format(fault=fault.program))
        data = folder / f"data-{name}"
        data.mkdir()
        (data / "rows.txt").write_text("1\n")
        settings = opt_ml.add_paths({"sagemaker_program": json.dumps("train.py")}, qa_model=False, has_code=True)
        config = opt_ml.HostConfig(name, names, "local", settings, {"train": data}, code)
        environment = {"BERTH_DISTRIBUTION": "mpi", **fault.environment.get(name, {})}
        if fault.absent:
            environment["BERTH_RENDEZVOUS_TIMEOUT"] = str(RENDEZVOUS_LIMIT)
        return {**host_options(folder / name, config, environment), **fault.options.get(name, {})}

    @contextmanager
    def _small_disks(self, fault: Fault, folder: Path) -> Iterator[None]:
        if not fault.small_disks:
            yield
            return
        ((name, path),) = fault.small_disks.items()
        with small_disk(folder / name / path):
            (folder / name / path / "data").mkdir()
            yield

    def _cause(self, fault: Fault, folder: Path, containers: Mapping[str, Any]) -> float:
        """Wait until all ranks run and cause the fault. Returns the time from which the hosts' seconds count."""
        if fault.before_training:
            since = min(moment(container, "StartedAt") for container in containers.values())
            return since + (RENDEZVOUS_LIMIT if fault.absent else 0)
        await_text(containers, b"READY", _READY_WITHIN)
        since = time.time()
        for name in fault.go:
            (folder / name / "code/go").touch()
        for name in fault.kills:
            containers[name].kill()
        for name in fault.cuts:
            for network in containers[name].attrs["NetworkSettings"]["Networks"]:
                self.client.networks.get(network).disconnect(containers[name])
        return since


def _first_line(path: Path) -> str:
    try:
        return (path.read_text("utf-8", "replace").splitlines() or [""])[0]
    except OSError:
        return ""


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("faults", __doc__)
    parser.add_argument("--hosts", type=program.positive, nargs="+", default=[2, 4], help="default: 2 4")
    parser.add_argument("--image", default=f"berth-train:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults whose names contain this")
    options = parser.parse_args(words)
    names = [name for name in FAULTS if options.only in name]
    if not names:
        raise UserError(f"No fault's name contains {options.only!r}. The names are: {'; '.join(FAULTS)}.")
    client = engine.connect()
    image = find_built_image(client, options.image)
    table: list[str] = []
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="berth-faults-") as scratch:
        bench = FaultBench(client, str(image.id), Path(scratch))
        for hosts in options.hosts:
            for name in names:
                with redirect_stdout(sys.stderr):  # the containers' logs
                    ends = bench.run(FAULTS[name], hosts)
                table += rows(name, FAULTS[name], hosts, ends)
                wrong += sum(not right(FAULTS[name], end) for end in ends)
    setting = [
        f"{program.setting('faults', words, client)}; {options.image} ({str(image.id)[7:19]}).",
        "One rank per host, under mpirun. Seconds: from the fault to the exit of the last of these hosts; for a host",
        "that never starts from the rendezvous' time-out, for an invalid setting from the first container's start.",
    ]
    print(report.page("Faults in jobs on several hosts", setting, *report.table(COLUMNS, table)))
    return 1 if wrong else 0


if __name__ == "__main__":
    program.end_with(main)
