"""An inference server in a container, as an endpoint runs it: started, watched until it answers, weighed, ended.

On the host's network, for Docker's proxy would take a part of the cores, and on the cores that it is given. Times count
from the begin of process 1. Begin and memory are read in /proc: the engine has to be this machine's, and the user root.
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
    """A server that answers on `port` of loopback. ping_s, first_answer_s: seconds from the begin of process 1 to a
    /ping of 200, and to the answer to the first request, which is sent just then.
    """

    container: Container
    port: int
    ping_s: float
    first_answer_s: float

    def processes(self) -> list[int]:
        """Their ids on this machine."""
        top = self.container.top()
        column = top["Titles"].index("PID")
        return [int(row[column]) for row in top["Processes"]]

    def memory(self) -> int:
        """Bytes of all processes, a page that several share counted once (PSS)."""
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
    """A server of this side for the length of a `with` block. first: the body of its first request, None for a server
    that answers none at once; at: where the model is in the container; memory: its limit in bytes.

    UserError if it does not come up, with its last line.
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
            said = " / ".join(container.logs(tail=3).decode(errors="replace").splitlines())
            raise UserError(f"{container.name} is {container.status} and does not answer /ping; it says: {said}")
        time.sleep(_POLL_SECONDS)
    pinged = _uptime()
    if first is None:
        return Server(container, port, pinged - began, pinged - began)
    reply = closed_loop(port, [first], 1).replies[0]
    if reply.status != http.client.OK:
        said = reply.lost or reply.body.decode(errors="replace")
        raise UserError(f"{container.name} answers its first request with {reply.status}: {said}")
    return Server(container, port, pinged - began, _uptime() - began)


def free_port(ports: Sequence[int] = range(8080, 8180)) -> int:
    """The first that is free, from SageMaker's own on; Multi Model Server takes none of those that Linux gives away."""
    for port in ports:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("0.0.0.0", port))
            return port
    raise UserError(f"all ports from {ports[0]} to {ports[-1]} are taken: end what listens there.")


def _uptime() -> float:
    """Seconds since this machine was started, the clock of /proc."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_began(pid: int) -> float:
    """When a process began, by the clock of /proc: field 22 of its stat, in hundredths; now, of one that has ended."""
    # The command's name, in parentheses, may hold spaces and parentheses of its own.
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) / 100 if fields else _uptime()


def process_memory(pid: int) -> int:
    """Bytes (PSS); 0 of a process that has ended."""
    for line in _proc(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    return 0


def _proc(pid: int, name: str) -> str:
    """A file of a process, empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except PermissionError:
        raise UserError(f"/proc/{pid}/{name} is not for this user to read: run this as root.") from None
    except (FileNotFoundError, ProcessLookupError):
        return ""
