"""An inference server in a container, as an endpoint runs it: start it, wait until it is healthy, measure it, stop it.

It uses the host's network, because Docker's proxy would take CPU time, and only the given cores. Times count from the
start of process 1. The start time and the memory are read from /proc, so the engine must run on this machine and the
user must be root.
"""

import http.client
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.types import Mount

from bench.machine import as_text
from bench.serving.load import closed_loop
from bench.serving.request import ask
from bench.serving.sides import Side
from berth.common import owner
from berth.common.errors import UserError

READY_WITHIN = 300.0  # seconds
_POLL_SECONDS = 0.05
_STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers on `port` of loopback. ping_s, first_answer_s: seconds from the start of process 1 to the
    first /ping with status 200, and to the answer to the first request, which is sent right after it.
    """

    container: Container
    port: int
    ping_s: float
    first_answer_s: float

    def processes(self) -> list[int]:
        """The process ids on this machine."""
        top = self.container.top()
        column = top["Titles"].index("PID")
        return [int(row[column]) for row in top["Processes"]]

    def memory(self) -> int:
        """Bytes of all processes; shared pages are counted once (PSS)."""
        return sum(map(process_memory, self.processes()))


@contextmanager
def running(
    client: DockerClient,
    side: Side,
    cores: Sequence[int],
    first: bytes | None,
    at: str = "/opt/ml/model",
    memory: int | None = None,
) -> Iterator[Server]:
    """Run a server of this side during a `with` block. first: the body of its first request, None to send none; at: the
    model's path in the container; memory: the container's limit in bytes.

    UserError with the server's last lines if it does not become healthy.
    """
    port = free_port()
    name = f"berth-bench-{side.name}-{port}"
    try:
        container = client.containers.create(
            side.image,
            ["serve"],
            name=name,
            labels=owner.this_process().labels(name),
            network_mode="host",
            cpuset_cpus=as_text(cores),
            mem_limit=memory,
            mounts=[Mount(at, str(side.model), type="bind", read_only=True)],
            environment={"SAGEMAKER_BIND_TO_PORT": str(port), **side.environment},
        )
    except APIError as error:
        raise UserError(f"The engine can't make a container of {side.image}: {error.explanation}") from None
    try:
        container.start()
        yield _ready(container, port, first)
    finally:
        with suppress(NotFound):
            container.stop(timeout=_STOP_SECONDS)
            container.remove(force=True, v=True)


def _ready(container: Container, port: int, first: bytes | None) -> Server:
    container.reload()
    began = process_began(int(container.attrs["State"]["Pid"]))
    until = time.monotonic() + READY_WITHIN
    while ask(port, "GET", "/ping", within=2.0)[0] != http.client.OK:
        container.reload()
        if container.status != "running" or time.monotonic() > until:
            lines = " / ".join(container.logs(tail=3).decode(errors="replace").splitlines())
            raise UserError(
                f"{container.name} is {container.status} and does not answer /ping; its last lines: {lines}"
            )
        time.sleep(_POLL_SECONDS)
    pinged = _uptime()
    if first is None:
        return Server(container, port, pinged - began, pinged - began)
    reply = closed_loop(port, [first], 1).replies[0]
    if reply.status != http.client.OK:
        reason = reply.lost or reply.body.decode(errors="replace")
        raise UserError(f"{container.name} answers its first request with {reply.status}: {reason}")
    return Server(container, port, pinged - began, _uptime() - began)


def free_port(ports: Sequence[int] = range(8080, 8180)) -> int:
    """The first free port from SageMaker's 8080 on; Multi Model Server refuses ephemeral ports."""
    for port in ports:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("0.0.0.0", port))
            return port
    raise UserError(f"all ports from {ports[0]} to {ports[-1]} are in use: stop a program that listens there.")


def _uptime() -> float:
    """Seconds since the boot, the clock of /proc."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_began(pid: int) -> float:
    """When a process started, on the clock of /proc: field 22 of stat, in hundredths; now if the process has ended."""
    # The command's name, in parentheses, may itself contain spaces and parentheses.
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) / 100 if fields else _uptime()


def process_memory(pid: int) -> int:
    """Bytes (PSS); 0 if the process has ended."""
    for line in _proc(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    return 0


def _proc(pid: int, name: str) -> str:
    """The text of a file of a process; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except PermissionError:
        raise UserError(f"this user may not read /proc/{pid}/{name}: run this as root.") from None
    except (FileNotFoundError, ProcessLookupError):
        return ""
