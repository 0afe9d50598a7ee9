"""The real distribution registry, Debian's `docker-registry`, as a process of a test on a loopback port.

`Registry` starts, stops, kills and restarts it with the same storage: plain or with TLS, and with Basic or token
authentication. With `disk_bytes` its storage is a small file system in a mount namespace that ends with the process.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from berth.ecr.registry.challenge import Credentials
from tests.doubles.certificates import Certificate
from tests.ports import free_port
from tests.waiting import until

COMMAND = "docker-registry"
_START_S = 30.0
_BALLAST = "ballast"


@dataclass
class Registry:
    """A registry. folder: its configuration, log and storage, which survive a restart; credentials: for Basic
    authentication; token: the `auth.token` section of its configuration, for a token server; disk_bytes: the size of
    its own small file system for its storage.
    """

    folder: Path
    certificate: Certificate | None = None
    credentials: Credentials | None = None
    token: dict[str, str] = field(default_factory=dict)
    disk_bytes: int = 0
    address: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def host(self) -> str:
        """The host in an image's name."""
        return f"{self.address}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://{self.host}"

    @property
    def storage(self) -> Path:
        """The folder of its files as this process sees it; a small disk only exists while the registry runs."""
        inside = self.folder / "storage"
        return Path(f"/proc/{self.process.pid}/root{inside}") if self.disk_bytes and self.process else inside

    @property
    def certificates(self) -> Path:
        """A folder to use instead of /etc/docker/certs.d, with its CA."""
        return self.folder / "certs.d"

    @property
    def log(self) -> str:
        """Its output since the first start."""
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        venv_programs = Path(sys.executable).parent
        command = shutil.which(COMMAND, path=f"{venv_programs}{os.pathsep}{os.environ['PATH']}")
        if command is None:
            pytest.fail(f"{COMMAND} is not installed: run `make registry`, which installs it.")
        self._write()
        line = [command, "serve", str(self.folder / "config.yml")]
        if self.disk_bytes:
            # A mount namespace of its own needs no root if users may make namespaces, and is gone with the process.
            mount = f"mount -t tmpfs -o size={self.disk_bytes} tmpfs '{self.folder / 'storage'}' && exec \"$@\""
            as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
            line = ["unshare", *as_root, "--mount", "sh", "-c", mount, "sh", *line]
        with (self.folder / "log").open("ab") as log:
            # Without the caller's variables: REGISTRY_… override the file, and Go's TLS and tracing settings could
            # change the tests.
            environment = {"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"}
            self.process = subprocess.Popen(line, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + _START_S
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{COMMAND} did not start: {self.log[-2000:]}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it and waits; SIGKILL simulates a power loss."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def until_logged(self, text: str) -> None:
        """Waits until its log contains `text`."""
        until(lambda: text in self.log, f"{text!r} in {self.folder / 'log'}", _START_S)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def fill(self, left_bytes: int) -> None:
        """Leaves so many bytes free on its small disk."""
        disk = os.statvfs(self.storage)
        free = disk.f_bavail * disk.f_frsize
        with (self.storage / _BALLAST).open("wb") as file:
            for _ in range(max(0, free - left_bytes) // 65536):
                file.write(bytes(65536))

    def make_room(self) -> None:
        """Undoes `fill`."""
        (self.storage / _BALLAST).unlink()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    def _write(self) -> None:
        (self.folder / "storage").mkdir(parents=True, exist_ok=True)
        http: dict[str, Any] = {"addr": self.host, "secret": "one secret, so that uploads outlive a restart"}
        if self.certificate:
            http["tls"] = {"certificate": str(self.certificate.certificate), "key": str(self.certificate.key)}
            trusted = self.certificates / self.host
            trusted.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.certificate.ca, trusted / "ca.crt")
        auth: dict[str, Any] = {"token": self.token} if self.token else {}
        if self.credentials:
            hashed = bcrypt.hashpw(self.credentials.password.encode(), bcrypt.gensalt(4)).decode()
            (self.folder / "htpasswd").write_text(f"{self.credentials.username}:{hashed}\n")
            auth = {"htpasswd": {"realm": "berth", "path": str(self.folder / "htpasswd")}}
        config = {
            "version": 0.1,
            "log": {"level": "info", "accesslog": {"disabled": False}},
            "storage": {
                "filesystem": {"rootdirectory": str(self.folder / "storage")},
                "delete": {"enabled": True},
                "maintenance": {"uploadpurging": {"enabled": False}},
            },
            "http": http,
            **({"auth": auth} if auth else {}),
        }
        # JSON is YAML.
        (self.folder / "config.yml").write_text(json.dumps(config, indent=1))


@contextmanager
def running(registry: Registry) -> Iterator[Registry]:
    """Runs a registry for a `with` block."""
    registry.start()
    try:
        yield registry
    finally:
        registry.kill()
