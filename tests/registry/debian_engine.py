"""Debian's newer Docker engines beside this machine's own: a root file system made by mmdebstrap, in a mount namespace.

It needs root and Debian's archive. Client and buildx of the same release come with it, and run on this machine.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker

from berth.common import engine, owner
from tests.registry.engines import address, connect

DOCKER = "docker.io,docker-cli,docker-buildx,ca-certificates,iptables,iproute2,mount"
PODMAN = "podman,runc,netavark,aardvark-dns,ca-certificates,iptables,nftables,mount"
# The engine sees only one of this machine's folders: its own, under the same path.
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
exec "$@"
"""


@dataclass(frozen=True)
class DebianEngine:
    """A running engine, its client's programs and their settings, in `folder`."""

    folder: Path
    client: docker.DockerClient

    @property
    def address(self) -> str:
        return address(self.folder)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make build.py, docker and buildx use this engine."""
        return {"DOCKER_HOST": self.address, **_variables(self.folder)}


def make_root(folder: Path, release: str, packages: str = DOCKER) -> Path:
    """Makes the root file system of a Debian release with its engine, in `folder`; takes a minute."""
    root = folder / release
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("mmdebstrap") is None:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-qq", "--yes", "--no-install-recommends", "mmdebstrap"], check=True)
    options = ["--aptopt=Acquire::Check-Valid-Until false"]
    source = f"deb [trusted=yes] http://deb.debian.org/debian {release} main"
    command = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={packages}", *options, release, str(root), source]
    bootstrap = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert bootstrap.returncode == 0, bootstrap.stderr[-3000:]
    return root


@contextmanager
def running(root: Path, folder: Path, settings: Mapping[str, object]) -> Iterator[DebianEngine]:
    """Runs the engine of a root file system with settings for daemon.json; its images are removed at the end.

    Its bridge is a network of this machine's engine, which gives its containers access to the network.
    """
    folder.mkdir(parents=True)
    (folder / "daemon.json").write_text(json.dumps(settings))
    client_variables(root, folder)
    name = f"berth-{root.name}"
    options = {"com.docker.network.bridge.name": name}
    bridge = engine.connect().networks.create(name, options=options, labels=owner.this_process().labels(name))
    places = {"config-file": "daemon.json", "data-root": "data", "exec-root": "exec", "pidfile": "pid"}
    words = [f"--{option}={folder / file}" for option, file in places.items()]
    words += [f"--host=unix://{folder / 'engine.sock'}", f"--bridge={name}", "--iptables=false", "--ip-masq=false"]
    try:
        with _started(root, folder, ["dockerd", *words]) as started:
            yield started
    finally:
        bridge.remove()


@contextmanager
def running_podman(root: Path, folder: Path, plain_registry: str) -> Iterator[DebianEngine]:
    """Runs podman's service for Docker's API; its images are removed at the end. plain_registry: the HOST:PORT that it
    uses with plain HTTP; Docker does that for loopback without a setting.
    """
    folder.mkdir(parents=True)
    settings = root / "etc" / "containers" / "registries.conf.d" / "berth.conf"
    settings.write_text(f'[[registry]]\nlocation = "{plain_registry}"\ninsecure = true\n')
    words = [f"--root={folder / 'data'}", f"--runroot={folder / 'run'}", "--runtime=runc", "--cgroup-manager=cgroupfs"]
    words += ["--log-level=warn", "system", "service", "--time=0"]
    with _started(root, folder, ["podman", *words, f"unix://{folder / 'engine.sock'}"]) as started:
        yield started


@contextmanager
def _started(root: Path, folder: Path, service: Sequence[str]) -> Iterator[DebianEngine]:
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _START, "sh", str(root), str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *service], stdout=log, stderr=log)
    try:
        yield DebianEngine(folder, connect(folder, process))
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder / "data", ignore_errors=True)


def client_variables(root: Path, folder: Path) -> dict[str, str]:
    """Copies the client and buildx of a root file system into `folder`; returns the variables for their use."""
    plugins = folder / "config" / "cli-plugins"
    for source, target in (("bin/docker", folder / "bin"), ("libexec/docker/cli-plugins/docker-buildx", plugins)):
        target.mkdir(parents=True)
        shutil.copy(root / "usr" / source, target)
    return _variables(folder)


def _variables(folder: Path) -> dict[str, str]:
    return {"DOCKER_CONFIG": str(folder / "config"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
