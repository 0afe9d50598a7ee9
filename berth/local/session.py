"""One run on the engine: its network, containers and scratch folder, all removed at its end.

Everything has the run's labels (owner.py). If this process is killed, `cleanup.remove_stale_runs` removes the rest at
the next call.
"""

import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, Mount

from berth.common import labels, owner
from berth.common.engine_errors import RAISED, explain
from berth.common.errors import UserError
from berth.contract.words import few
from berth.images.doctor import passes_gpus
from berth.images.selection import find_built_image
from berth.local import cleanup
from berth.local.chown import chown_folder
from berth.local.log_stream import ErrorLines, LogFollower
from berth.local.signals import Interrupts

# Process 1 of a container ignores SIGTERM until it has a handler, which Python installs after some imports.
_STARTUP_SECONDS = 3.0
_RESEND_SECONDS = 0.5
_POLL_SECONDS = 0.25
_LOG_SECONDS = 10.0
# /dev/shm of a training container: data loaders fail with Docker's 64 MB (a bus error).
SHM_SIZE = "1g"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to create. host: its name in the run and on the network; entrypoint: instead of the image's;
    ports: `8080/tcp` → (address, port) of this machine; shm_size: of /dev/shm, in Docker's notation; offline: without
    a network, instead of the run's.
    """

    host: str
    command: Sequence[str]
    mounts: Sequence[Mount]
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] | None = None
    ports: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    shm_size: str | None = None
    gpus: bool = False
    offline: bool = False


def bind(target: str, source: Path, *, read_only: bool = False) -> Mount:
    """A mount of this machine's `source` at `target` in a container."""
    return Mount(target, str(source), type="bind", read_only=read_only)


class RunSession:
    """A run. As a context manager it removes everything that it started, also after an error.

    say: prints a line; stop_grace: seconds between SIGTERM and SIGKILL, ended early by a second Ctrl-C; killed: the
    hosts that got SIGKILL.
    """

    def __init__(self, client: DockerClient, image: str, *, say: Callable[[str], None], stop_grace: float) -> None:
        self.client = client
        self.image = image
        self.say = say
        self.stop_grace = stop_grace
        self.killed: list[str] = []
        self.run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        self.interrupts = Interrupts()
        self.scratch = cleanup.scratch_root() / self.run_id
        self._labels = owner.this_process().labels(self.run_id)
        self._network: str | None = None
        self._started: dict[str, float] = {}  # container ID → start time, by the monotonic clock

    def __enter__(self) -> Self:
        find_built_image(self.client, self.image)  # raises before anything is created
        cleanup.remove_stale_runs(self.client, self.image, self.say)
        self.scratch.mkdir(parents=True)
        (self.scratch / cleanup.RECORD).write_text(json.dumps(self._labels))
        self.interrupts.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.stop()
            cleanup.remove_run(self.client, self.run_id, self.say)
            cleanup.remove_scratch(self.client, self.image, self.scratch)
        finally:
            self.interrupts.__exit__(*error)

    def make_network(self) -> str:
        """The name of the run's private network, which the first call creates."""
        if self._network is None:
            name = f"berth-{self.run_id}"
            try:
                self.client.networks.create(name, driver="bridge", labels=self._labels, check_duplicate=True)
            except APIError as error:
                raise UserError(
                    f"The engine can't make a network ({error.explanation}): try `docker network prune`."
                ) from None
            self._network = name
        return self._network

    def create(self, spec: ContainerSpec) -> Container:
        """Creates a container without starting it."""
        if spec.offline:
            connection: dict[str, Any] = {"network_mode": "none"}
        else:
            network = self.make_network()
            endpoint = self.client.api.create_endpoint_config(aliases=[spec.host])
            connection = {"network": network, "networking_config": {network: endpoint}}
        self.interrupts.check()
        return self.client.containers.create(
            self.image,
            list(spec.command),
            name=f"berth-{self.run_id}-{spec.host}",
            hostname=spec.host,
            labels=self._labels,
            entrypoint=None if spec.entrypoint is None else list(spec.entrypoint),
            mounts=list(spec.mounts),
            environment=dict(spec.environment),
            device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])] if spec.gpus else None,
            shm_size=spec.shm_size,
            ports={**spec.ports},
            security_opt=["no-new-privileges"],
            **connection,
        )

    def start(self, container: Container) -> None:
        """Starts a container; UserError if the engine can't."""
        self.interrupts.check()
        try:
            container.start()
        except APIError as error:
            raise UserError(f"The engine can't start {container.name} from {self.image}: {error.explanation}") from None
        self._started[str(container.id)] = time.monotonic()

    def run(self, spec: ContainerSpec, log: Callable[[str], None]) -> tuple[int, str]:
        """Runs a container to its end; returns its exit code, and the last `berth: error: …` in its log, or ""."""
        container = self.create(spec)
        lines = ErrorLines(log)
        follower = LogFollower(container, lines, threading.Lock())
        self.start(container)
        while is_running(container):
            self.interrupts.wait(_POLL_SECONDS)
        follower.join(_LOG_SECONDS)
        return int(container.attrs["State"]["ExitCode"]), lines.last_error

    def has_started(self, container: Container) -> bool:
        """Whether `start` has started the container; it may have ended since."""
        return str(container.id) in self._started

    def list_running(self) -> dict[str, str]:
        """The run's running containers, ID → host, with one call to the engine."""
        found = self.client.api.containers(filters={"label": f"{labels.RUN}={self.run_id}"})
        return {str(each["Id"]): str(each["Names"][0]).rpartition(f"{self.run_id}-")[2] for each in found}

    def stop(self) -> None:
        """Sends SIGTERM to every running container of the run, and SIGKILL after the grace or at the next Ctrl-C.

        Containers that have just started may have missed SIGTERM and get it again. Others don't, because their programs
        may be saving their state.
        """
        running = self.list_running()
        if not running:
            return
        signals_before = self.interrupts.count
        self.say(f"Stopping {len(running)} container(s), at most {self.stop_grace:.0f} s; Ctrl-C stops them at once.")
        self._terminate(running)
        began = last_sent = time.monotonic()
        while running and time.monotonic() < began + self.stop_grace and self.interrupts.count == signals_before:
            time.sleep(0.1)
            running = self.list_running()
            if time.monotonic() > last_sent + _RESEND_SECONDS:
                last_sent = time.monotonic()
                self._terminate(
                    [each for each in running if last_sent - self._started.get(each, -math.inf) < _STARTUP_SECONDS]
                )
        self.killed = sorted(running.values(), key=lambda host: (len(host), host))
        if running and self.interrupts.count == signals_before:
            verb = "was" if len(self.killed) == 1 else "were"
            self.say(f"{few(self.killed)} did not end within {self.stop_grace:.0f} s and {verb} killed.")
        cleanup.call_engine([partial(self.client.api.kill, each) for each in running])

    def _terminate(self, containers: Iterable[str]) -> None:
        """Sends SIGTERM to containers, by their IDs."""
        cleanup.call_engine([partial(self.client.api.kill, each, "SIGTERM") for each in containers])

    def chown_scratch(self) -> None:
        """Gives the files that root in the run's containers wrote to the caller."""
        chown_folder(self.client, self.image, self.scratch)

    def rescue(self, folders: Sequence[Path]) -> Path:
        """Moves `folders` out of the scratch folder before its removal, to a folder next to it on the same disk."""
        kept = self.scratch.with_name(f"kept-{self.run_id}")
        for folder in folders:
            target = kept / folder.relative_to(self.scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
        return kept


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turns the Docker SDK's errors into UserError."""
    try:
        yield
    except RAISED as error:
        raise UserError(explain(error)) from error


def require_gpus(client: DockerClient, instead: str = "leave --gpus out") -> None:
    """UserError if the engine can't pass GPUs on; instead: what else the user can do."""
    if not passes_gpus(client.info()):
        raise UserError(
            "This engine has no NVIDIA runtime, so it can't pass a GPU on: install nvidia-container-toolkit, run "
            f"`sudo nvidia-ctk runtime configure --runtime=docker` and restart the engine, or {instead}."
        )


def is_running(container: Container) -> bool:
    """Whether the container is running now; False if it was removed."""
    try:
        container.reload()
    except NotFound:
        return False
    return str(container.status) in ("created", "running", "paused", "restarting")
