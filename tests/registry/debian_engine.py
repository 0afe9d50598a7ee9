"""Debian's newer Docker engines beside this machine's own: a root file system made by mmdebstrap, in a mount namespace.

It needs root and Debian's archive. Client and buildx of the same release come with it, and run on this machine.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from berth.common import engine, owner

PACKAGES = "docker.io,docker-cli,docker-buildx,ca-certificates,iptables,iproute2,mount"
_START_S = 60.0
# The engine's folder is the only one of this machine that it sees, under the same path.
_START = r"""
set -eu
root=$1 folder=$2
shift 2
mount --bind "$root" "$root"
for each in proc sys dev; do mount --rbind "/$each" "$root/$each"; done
for each in run tmp; do mount -t tmpfs tmpfs "$root/$each"; done
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root$folder" "$root/old"
mount --bind "$folder" "$root$folder"
cd "$root"
pivot_root . old
umount -l /old
exec dockerd "$@"
"""


@dataclass(frozen=True)
class DebianEngine:
    """A running engine, its client's programs and their settings, in `folder`."""

    folder: Path
    client: docker.DockerClient

    @property
    def address(self) -> str:
        return f"unix://{self.folder / 'engine.sock'}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which build.py, docker and buildx of that release go to it."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {"DOCKER_HOST": self.address, "DOCKER_CONFIG": str(self.folder / "config"), "PATH": path}


def make_root(folder: Path, release: str) -> Path:
    """The root file system of a Debian release with its engine, in `folder`; a minute."""
    root = folder / release
    if shutil.which("mmdebstrap") is None:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-qq", "--yes", "--no-install-recommends", "mmdebstrap"], check=True)
    options = ["--aptopt=Acquire::Check-Valid-Until false"]
    source = f"deb [trusted=yes] http://deb.debian.org/debian {release} main"
    command = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={PACKAGES}", *options, release, str(root), source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return root


@contextmanager
def running(root: Path, folder: Path, settings: Mapping[str, object]) -> Iterator[DebianEngine]:
    """The engine of a root file system with these settings of daemon.json; its images go with it."""
    folder.mkdir(parents=True)
    (folder / "daemon.json").write_text(json.dumps(settings))
    _copy_client(root, folder)
    name = f"berth-{root.name}"
    options = {"com.docker.network.bridge.name": name}
    bridge = engine.connect().networks.create(name, options=options, labels=owner.this_process().labels(name))
    words = ["--config-file", "daemon.json", "--data-root", "data", "--exec-root", "exec", "--pidfile", "pid"]
    words = [str(folder / word) if number % 2 else word for number, word in enumerate(words)]
    words += ["--host", f"unix://{folder / 'engine.sock'}", "--bridge", name, "--iptables=false", "--ip-masq=false"]
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _START, "sh", str(root), str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *words], stdout=log, stderr=log)
    try:
        yield DebianEngine(folder, _connect(folder, process))
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder / "data", ignore_errors=True)
        bridge.remove()


def _copy_client(root: Path, folder: Path) -> None:
    """Its client, and buildx where that looks for it."""
    plugins = folder / "config" / "cli-plugins"
    for source, target in (("bin/docker", folder / "bin"), ("libexec/docker/cli-plugins/docker-buildx", plugins)):
        target.mkdir(parents=True)
        shutil.copy(root / "usr" / source, target)


def _connect(folder: Path, process: "subprocess.Popen[bytes]") -> docker.DockerClient:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client = docker.DockerClient(base_url=f"unix://{folder / 'engine.sock'}", timeout=600)
            client.ping()
            return client
        except DockerException:
            time.sleep(0.2)
    pytest.fail(f"the engine of {folder} did not start: {(folder / 'log').read_text()[-2000:]}")
