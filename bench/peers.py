"""Jobs of two hosts, one of which is slow: a job must end only when a host is lost.

Usage: python -m bench.peers [--seconds 30] [--image NAME] > bench/results/DATE-peers.md   (as root)

While the job's program runs, one host gets almost no CPU, or reads gigabytes at its memory limit, or is paused (docker
pause). How long each host received nothing from the other is read from the kernel, for the rendezvous' connection.
Exit code 1 if a job did not end as expected.
"""

import contextlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.models.containers import Container

from bench import machine, program, report
from bench.jobs.containers import await_end, await_text, host_options, pids, started_hosts
from berth.common import engine
from berth.images.pins import pins
from berth.local import opt_ml
from berth.train.hosts.rendezvous import PORT

LIMIT_SECONDS = 180.0
PEER_TIMEOUT = 12
MEMORY_MB = 256
_CPU_PERIOD = 100_000
_LAST_RECEIVED = re.compile(r"\blastrcv:(\d+)")
PROGRAM = f"""
import multiprocessing, os, pathlib, time
end = time.monotonic() + float(os.environ["SECONDS"])
print("RUNS", flush=True)

def spin():
    while time.monotonic() < end:
        pass

def free():
    counters = dict(line.split() for line in open(LIMITED) if line.startswith("total_"))
    return {MEMORY_MB << 20} - int(counters["total_rss"])

LIMITED = "/sys/fs/cgroup/memory/memory.stat"
if os.environ.get("LOAD") == "cpu":
    for _ in range(8):
        multiprocessing.Process(target=spin).start()
elif os.environ.get("LOAD") == "memory":
    held = []
    while free() > 12 << 20:
        held.append(os.urandom(1 << 20))
    files = [path for path in pathlib.Path("/opt/berth/lib").rglob("*.so*") if path.is_file()]
    while time.monotonic() < end:
        for path in files:
            with path.open("rb") as file:
                while file.read(1 << 20) and time.monotonic() < end:
                    pass
time.sleep(max(0, end - time.monotonic()))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What happens to `host` while the program runs. load: what the program does there; cpu: its share of a core (0: no
    limit); pause: seconds for which it is paused; lost: the job must end, because the host counts as lost.
    """

    name: str
    host: str = "algo-2"
    load: str = ""
    cpu: float = 0.0
    pause: float = 0.0
    lost: bool = False


CASES = (
    Case("nothing"),
    Case("5 % of a core, 8 busy processes", load="cpu", cpu=0.05),
    Case("5 % of a core, 8 busy processes", "algo-1", load="cpu", cpu=0.05),
    Case(f"at its limit of {MEMORY_MB} MB, reads files", load="memory"),
    Case(f"at its limit of {MEMORY_MB} MB, reads files", "algo-1", load="memory"),
    Case("paused for 9 s", pause=9.0),
    Case("paused for 9 s", "algo-1", pause=9.0),
    Case("paused for 20 s", pause=20.0, lost=True),
)


@dataclass(frozen=True, slots=True)
class Result:
    """How a case ended. silence: the longest time in seconds in which each host received nothing from the other."""

    case: Case
    silence: Mapping[str, float]
    codes: Mapping[str, int]
    log: str

    @property
    def right(self) -> bool:
        if self.case.lost:
            return set(self.codes.values()) == {1} and f"host {self.case.host} was lost" in self.log
        return set(self.codes.values()) == {0}


def render(results: Sequence[Result]) -> list[str]:
    """The table and the number of failures."""
    columns = ("host", "what happens to it", " silence on algo-1, s", " on algo-2, s", "exit codes")
    rows = []
    for each in results:
        silences = [f"{seconds:.1f}" for seconds in each.silence.values()]
        codes = f"{', '.join(map(str, each.codes.values()))}{'' if each.right else ' WRONG'}"
        rows.append(report.row(each.case.host, each.case.name, *silences, codes))
    wrong = sum(not each.right for each in results)
    return [*report.table(columns, rows), "", f"{wrong} of {len(results)} jobs did not end as expected."]


@contextmanager
def measured(containers: Mapping[str, Container]) -> Iterator[dict[str, float]]:
    """Measure during the block the longest time in seconds in which each host's connection received nothing."""
    silence = dict.fromkeys(containers, 0.0)
    stop = threading.Event()

    def watch(name: str, pid: int) -> None:
        command = ["nsenter", "-t", str(pid), "-n", "ss", "-tinH", "state", "established"]
        ports = [f"( sport = :{PORT} or dport = :{PORT} )"]
        while not stop.wait(0.2):
            printed = subprocess.run([*command, *ports], capture_output=True, text=True).stdout
            silence[name] = max([silence[name], *(int(each) / 1000 for each in _LAST_RECEIVED.findall(printed))])

    threads = [threading.Thread(target=watch, args=(name, pids(each, "berth")[0])) for name, each in containers.items()]
    for thread in threads:
        thread.start()
    try:
        yield silence
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def run(client: DockerClient, image: str, case: Case, seconds: float, folder: Path) -> Result:
    """Run one job on two hosts."""
    names = opt_ml.host_names(2)

    def options(name: str) -> dict[str, Any]:
        config = opt_ml.HostConfig(name, names, "local", {"sagemaker_program": "train.py"}, {})
        load = {"LOAD": case.load} if name == case.host else {}
        variables = {"BERTH_PEER_TIMEOUT": str(PEER_TIMEOUT), "SECONDS": str(seconds), **load}
        host = host_options(folder / name, config, variables)
        (folder / name / "code").mkdir(exist_ok=True)
        (folder / name / "code" / "train.py").write_text(PROGRAM, "utf-8")
        limited = case.load == "memory" and name == case.host
        return {**host, **({"mem_limit": f"{MEMORY_MB}m", "memswap_limit": f"{MEMORY_MB}m"} if limited else {})}

    with contextlib.redirect_stdout(None), started_hosts(client, image, names, options) as containers:
        await_text(containers, b"RUNS", LIMIT_SECONDS)
        with measured(containers) as silence:
            disturb(containers[case.host], case, seconds)
            for container in containers.values():
                await_end(container, LIMIT_SECONDS)
        codes = {name: int(each.wait()["StatusCode"]) for name, each in containers.items()}
        log = "".join(each.logs().decode(errors="replace") for each in containers.values())
    print(f"{case}: {codes}\n{log}", file=sys.stderr)
    return Result(case, silence, codes, log)


def disturb(container: Container, case: Case, seconds: float) -> None:
    """Limit or pause a host as the case says, and undo it before the program ends."""
    if case.cpu:
        container.update(cpu_period=_CPU_PERIOD, cpu_quota=int(case.cpu * _CPU_PERIOD))
        time.sleep(seconds)
        container.update(cpu_period=_CPU_PERIOD, cpu_quota=-1)
    if case.pause:
        container.pause()
        time.sleep(case.pause)
        container.unpause()


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("peers", __doc__)
    parser.add_argument(
        "--seconds", type=program.positive, default=30, help="duration of each program (default: %(default)s)"
    )
    parser.add_argument("--image", default=f"berth-train:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    options = parser.parse_args(words)
    with contextlib.closing(engine.connect()) as client, tempfile.TemporaryDirectory(prefix="berth-peers-") as scratch:
        setting = program.setting("peers", words, client, machine.parse_cores(None))
        results = [
            run(client, options.image, case, options.seconds, Path(scratch) / str(number))
            for number, case in enumerate(CASES)
        ]
    heartbeat = f"BERTH_PEER_TIMEOUT is {PEER_TIMEOUT} s; a heartbeat is sent every second."
    print(report.page("Slow hosts", [f"{setting}.", heartbeat], *render(results)))
    return 1 if any(not each.right for each in results) else 0


if __name__ == "__main__":
    program.end_with(main)
