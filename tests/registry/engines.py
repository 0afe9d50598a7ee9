"""A second Docker engine without our images, as on another machine; needs root, and is removed at the end.

It runs no container, but needs a bridge: with `--bridge none` it would delete docker0, which the first engine's
containers and builds use. So the first engine makes a bridge for it.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

import docker
import pytest
from docker.errors import DockerException

from berth.common import engine, owner

_START_S = 60.0


def address(folder: Path) -> str:
    """DOCKER_HOST for the engine in `folder`."""
    return f"unix://{folder / 'engine.sock'}"


@contextmanager
def second_engine(folder: Path) -> Iterator[docker.DockerClient]:
    """Runs an engine with its images in `folder`."""
    name = f"berth-{token_hex(4)}"  # a bridge's name has at most 15 characters
    options = {"com.docker.network.bridge.name": name}
    bridge = engine.connect().networks.create(name, options=options, labels=owner.this_process().labels(name))
    try:
        # A socket's path has at most 107 characters, and containerd's is below this one.
        with TemporaryDirectory(prefix="berth-", dir="/run") as exec_root, _running(folder, exec_root, name) as client:
            yield client
    finally:
        bridge.remove()


@contextmanager
def _running(folder: Path, exec_root: str, bridge: str) -> Iterator[docker.DockerClient]:
    command = [
        "dockerd",
        *("--data-root", str(folder / "data")),
        *("--exec-root", exec_root),
        *("--pidfile", str(folder / "pid")),
        *("--host", address(folder)),
        *("--bridge", bridge, "--iptables=false", "--ip-masq=false"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield connect(folder, process)
    finally:
        process.terminate()
        process.wait(60)
        # An engine bind-mounts its folder onto itself; a killed engine leaves the mount.
        subprocess.run(["umount", "--lazy", str(folder / "data")], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(folder / "data", ignore_errors=True)


def connect(folder: Path, process: "subprocess.Popen[bytes]") -> docker.DockerClient:
    """A client of the engine that `process` starts in `folder`, once it answers."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client = docker.DockerClient(base_url=address(folder), timeout=600)
            client.ping()
            return client
        except DockerException:
            time.sleep(0.2)
    pytest.fail(f"the engine of {folder} did not start: {(folder / 'log').read_text()[-2000:]}")
