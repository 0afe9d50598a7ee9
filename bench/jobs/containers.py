"""The hosts of a job as containers of the training image on a temporary network."""

import contextlib
import datetime
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.models.networks import Network
from requests.exceptions import RequestException

from bench.jobs.killing import lives
from bench.jobs.small import RANKS_PER_HOST
from berth.common import engine
from berth.common.errors import UserError
from berth.local import opt_ml

_MARK = {"berth.test": "1"}
_LIST_EVERY = 0.3


@contextmanager
def started_hosts(
    client: DockerClient, image: str, names: Sequence[str], options: Callable[[str], Mapping[str, Any]]
) -> Iterator[dict[str, Container]]:
    """A started container per name, which is also its host name on a temporary network; all removed at the end.

    options: returns a container's options for `containers.create`.
    """
    network = make_network(client)
    containers: dict[str, Container] = {}
    try:
        for name in names:
            endpoint = client.api.create_endpoint_config(aliases=[name])
            containers[name] = client.containers.create(
                image,
                labels=_MARK,
                network=network.name,
                networking_config={str(network.name): endpoint},
                **options(name),
            )
        for container in containers.values():
            container.start()
        yield containers
    finally:
        for container in containers.values():
            print(container.logs().decode(errors="replace"))
            container.remove(force=True, v=True)
        network.remove()


def make_network(client: DockerClient) -> Network:
    """A new network; the caller removes it."""
    return client.networks.create(f"berth-test-{os.getpid()}-{time.time_ns()}", driver="bridge", labels=_MARK)


def host_options(
    root: Path, config: opt_ml.HostConfig, environment: Mapping[str, str], hostname: str | None = None
) -> dict[str, Any]:
    """Options of `containers.create` for a host of a job. Creates its /opt/ml at `root`, which must not exist."""
    opt_ml.create_host_folder(root, config)
    mounts = {
        target: (source, "rw") for target, source in opt_ml.host_mounts(root, has_code=config.code is not None).items()
    }
    mounts |= {target: (source, "ro") for target, source in opt_ml.channel_mounts(config.channels).items()}
    return {
        "command": ["train"],
        "hostname": hostname or config.host,
        "volumes": [f"{source}:{target}:{mode}" for target, (source, mode) in mounts.items()],
        "environment": dict(environment),
    }


def pids(container: Container, words: str) -> list[int]:
    """Process ids on this machine of a container's processes whose command lines contain `words`."""
    with contextlib.suppress(APIError):  # the container has exited
        listed = container.top(ps_args="-eo pid,args")["Processes"]
        return [int(pid) for pid, command in listed if words in command]
    return []


def await_end(container: Container, limit: float) -> None:
    """Wait until a container exits; kill it after `limit` seconds."""
    try:
        container.wait(timeout=limit)
    except RequestException:
        with contextlib.suppress(APIError):  # it has just exited
            container.kill()
        container.wait()


def await_text(containers: Mapping[str, Container], text: bytes, limit: float) -> None:
    """Wait until every container has logged `text`; UserError if one exits before, or after `limit` seconds."""
    deadline = time.monotonic() + limit
    for name, container in containers.items():
        while text not in container.logs():
            container.reload()
            if time.monotonic() > deadline or container.status != "running":
                raise UserError(f"{name} did not start to train: {container.logs().decode(errors='replace')}")
            time.sleep(0.1)


def moment(container: Container, which: str) -> float:
    """Seconds since the epoch at which a container started (`StartedAt`) or exited (`FinishedAt`)."""
    container.reload()
    whole, _, rest = container.attrs["State"][which].rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC).timestamp() + float(f"0.{rest or 0}")


class JobContainers:
    """The hosts of one start of a job; see bench.jobs.killing.RunningJob."""

    def __init__(self, roots: list[Path], containers: Mapping[str, Container]) -> None:
        self.hosts = roots
        self.containers = list(containers.values())
        self.began = time.monotonic()
        self._lines: list[bytes] = []
        self._codes: dict[str, int] = {}
        self._entries = [self._pid(each) for each in self.containers]
        self._ranks: list[int] = []
        self._waiting = [threading.Thread(target=self._wait, args=(each,), daemon=True) for each in self.containers]
        for each in self._waiting:
            each.start()
        threading.Thread(target=self._find_ranks, daemon=True).start()
        self._following = threading.Thread(target=self._follow, daemon=True)
        self._following.start()

    @staticmethod
    def _pid(container: Container) -> int:
        container.reload()
        return int(container.attrs["State"]["Pid"])

    def _follow(self) -> None:
        with contextlib.suppress(APIError, RequestException):  # the container is removed
            for line in self.containers[0].logs(stream=True, follow=True):
                self._lines.append(line)

    def _wait(self, container: Container) -> None:
        self._codes[str(container.name)] = int(container.wait()["StatusCode"])

    def _find_ranks(self) -> None:
        """List the ranks in advance, because the engine takes a tenth of a second for it."""
        while self.running() and len(self._ranks) < RANKS_PER_HOST * len(self.containers):
            self._ranks = [pid for each in self.containers for pid in pids(each, "berth.train.run_qa")]
            time.sleep(_LIST_EVERY)

    @property
    def checkpoints(self) -> Path:
        return self.hosts[0] / "checkpoints"

    def log(self) -> str:
        return b"".join(self._lines).decode(errors="replace")

    def running(self) -> bool:
        return any(each.is_alive() for each in self._waiting)

    def ranks(self) -> list[int]:
        return [pid for pid in self._ranks if lives(pid)]

    def entries(self) -> list[int]:
        return [pid for pid in self._entries if lives(pid)]

    def wait(self, limit: float) -> list[int]:
        """The hosts' exit codes; containers that still run after `limit` seconds are killed."""
        deadline = time.monotonic() + limit
        for each in self._waiting:
            each.join(max(0.0, deadline - time.monotonic()))
        for container in self.containers:
            if str(container.name) not in self._codes:
                with contextlib.suppress(APIError):  # it has just exited
                    container.kill()
        for each in (*self._waiting, self._following):
            each.join(10)
        return [self._codes.get(str(container.name), -1) for container in self.containers]

    def failures(self) -> str:
        """The last lines of every host's log."""
        return "\n".join(each.logs(tail=30).decode(errors="replace") for each in self.containers)


class Containers:
    """Starts jobs in containers of an image. channels: folders of this machine."""

    victims: tuple[str, ...] = ("rank", "entry", "container")

    def __init__(
        self, image: str, channels: Mapping[str, Path], hyperparameters: Mapping[str, str], hosts: int
    ) -> None:
        self._client = engine.connect()
        self._image = image
        self._channels = channels
        self._hyperparameters = opt_ml.add_paths(hyperparameters, qa_model="model" in channels, has_code=False)
        self._names = opt_ml.host_names(hosts)
        self._options: dict[str, dict[str, Any]] = {}

    def lay_out(self, folder: Path) -> list[Path]:
        """Create an /opt/ml in `folder` for each host."""
        roots = [folder / name for name in self._names]
        for root in roots:
            config = opt_ml.HostConfig(root.name, self._names, "local", self._hyperparameters, self._channels)
            self._options[root.name] = host_options(root, config, {})
        return roots

    @contextmanager
    def started(self, roots: list[Path]) -> Iterator[JobContainers]:
        """Start the hosts; all are removed at the end."""
        with contextlib.redirect_stdout(None):
            with started_hosts(self._client, self._image, self._names, self._options.__getitem__) as containers:
                job = JobContainers(roots, containers)
                yield job
                job.wait(0)

    def close(self) -> None:
        """Close the connection to the engine."""
        self._client.close()
