"""One run on the engine: its network, its containers, its scratch folder, and the promise that all of it goes away.

Everything carries the run's labels (owner.py), so that what this process could not remove, because it was killed,
is found and removed by `cleanup.remove_stale_runs` at the next call.
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
from berth.common.console import few
from berth.common.engine_errors import RAISED, explain
from berth.common.errors import UserError
from berth.images.doctor import passes_gpus
from berth.images.selection import find_built_image
from berth.local import cleanup
from berth.local.chown import chown_folder
from berth.local.log_stream import ErrorLines, LogFollower
from berth.local.signals import Interrupts

# Process 1 of a container ignores SIGTERM until it has a handler for it, which takes Python and its imports a moment.
_DEAF_SECONDS = 3.0
_AGAIN_SECONDS = 0.5
_POLL_SECONDS = 0.25
_LOG_SECONDS = 10.0
# /dev/shm of a container that trains: Docker's 64 MB are too few for data loaders (a bus error).
SHM_SIZE = "1g"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to make. host: its name in the run and on the network; entrypoint: in place of the image's own;
    ports: `8080/tcp` → (address, port) of this machine; shm_size: of /dev/shm, as Docker writes it; offline: on no
    network, instead of the run's.
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
    """`source` of this machine at `target` in a container."""
    return Mount(target, str(source), type="bind", read_only=read_only)


class RunSession:
    """A run in the making; a context manager whose end removes all that it started, whatever happened.

    `say` takes one line for the user. Containers get SIGTERM first and `stop_grace` seconds; a second Ctrl-C cuts that
    short. `killed` names the hosts that got SIGKILL after that.
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
        self._started: dict[str, float] = {}  # container id → when, by the monotonic clock

    def __enter__(self) -> Self:
        find_built_image(self.client, self.image)  # refused before anything is made
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
        """The name of the run's private network, made at the first call."""
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
        """A container, not started."""
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
        """Starts a container, the engine's refusal turned into a sentence."""
        self.interrupts.check()
        try:
            container.start()
        except APIError as error:
            raise UserError(f"The engine can't start {container.name} from {self.image}: {error.explanation}") from None
        self._started[str(container.id)] = time.monotonic()

    def run(self, spec: ContainerSpec, log: Callable[[str], None]) -> tuple[int, str]:
        """Runs a container to its end: its exit code, and the last of the kit's own errors in its log, if any."""
        container = self.create(spec)
        lines = ErrorLines(log)
        follower = LogFollower(container, lines, threading.Lock())
        self.start(container)
        while is_running(container):
            self.interrupts.wait(_POLL_SECONDS)
        follower.join(_LOG_SECONDS)
        return int(container.attrs["State"]["ExitCode"]), lines.last_error

    def has_started(self, container: Container) -> bool:
        """Whether `start` has started the container, which may have ended since."""
        return str(container.id) in self._started

    def list_running(self) -> dict[str, str]:
        """The run's containers that run, id → host, by one question to the engine for all of them."""
        found = self.client.api.containers(filters={"label": f"{labels.RUN}={self.run_id}"})
        return {str(each["Id"]): str(each["Names"][0]).rpartition(f"{self.run_id}-")[2] for each in found}

    def stop(self) -> None:
        """SIGTERM to every running container of the run, then SIGKILL after the grace, or at the next Ctrl-C.

        SIGTERM again to those that had only just started and may not have heard it; never to others, whose programs may
        be saving what they have.
        """
        running = self.list_running()
        if not running:
            return
        seen = self.interrupts.count
        self.say(f"Stopping {len(running)} container(s), at most {self.stop_grace:.0f} s; Ctrl-C stops them at once.")
        self._terminate(running)
        began = asked = time.monotonic()
        while running and time.monotonic() < began + self.stop_grace and self.interrupts.count == seen:
            time.sleep(0.1)
            running = self.list_running()
            if time.monotonic() > asked + _AGAIN_SECONDS:
                asked = time.monotonic()
                self._terminate(
                    [each for each in running if asked - self._started.get(each, -math.inf) < _DEAF_SECONDS]
                )
        self.killed = sorted(running.values(), key=lambda host: (len(host), host))
        if running and self.interrupts.count == seen:
            were = "was" if len(self.killed) == 1 else "were"
            self.say(f"{few(self.killed)} did not end within {self.stop_grace:.0f} s and {were} killed.")
        cleanup.call_engine([partial(self.client.api.kill, each) for each in running])

    def _terminate(self, containers: Iterable[str]) -> None:
        """SIGTERM to containers, by their ids."""
        cleanup.call_engine([partial(self.client.api.kill, each, "SIGTERM") for each in containers])

    def chown_scratch(self) -> None:
        """Gives the run's files, which root in the containers wrote, to the caller."""
        chown_folder(self.client, self.image, self.scratch)

    def rescue(self, folders: Sequence[Path]) -> Path:
        """Moves `folders` of the scratch folder, which is about to go, next to it: on its disk that takes no space."""
        kept = self.scratch.with_name(f"kept-{self.run_id}")
        for folder in folders:
            target = kept / folder.relative_to(self.scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
        return kept


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turns what the Docker SDK raises when the engine refuses or dies into one sentence."""
    try:
        yield
    except RAISED as error:
        raise UserError(explain(error)) from error


def require_gpus(client: DockerClient, instead: str = "leave --gpus out") -> None:
    """Refuses where the engine could not pass a GPU on; `instead` is what else the user can do."""
    if not passes_gpus(client.info()):
        raise UserError(
            "This engine has no NVIDIA runtime, so it can't pass a GPU on: install nvidia-container-toolkit, run "
            f"`sudo nvidia-ctk runtime configure --runtime=docker` and restart the engine, or {instead}."
        )


def is_running(container: Container) -> bool:
    """Whether the container runs as of now; one that somebody removed does not."""
    try:
        container.reload()
    except NotFound:
        return False
    return str(container.status) in ("created", "running", "paused", "restarting")
