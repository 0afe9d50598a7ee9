"""A private sshd on each worker, for mpirun only, and the leader's client settings for it.

Keys are made when the job starts, in a private folder in memory, and deleted when it ends. The leader's public key and
the workers' host keys are exchanged over the rendezvous, so ssh asks no questions and the image contains no keys.
"""

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp

from berth.contract.errors import JobError
from berth.train.hosts.rendezvous import Leader
from berth.train.startup.sdk3_driver import REAL_SSHD

_START_SECONDS = 10.0
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SHELL_VARIABLES = frozenset({"_", "PWD", "OLDPWD", "SHLVL"})


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only we can read, in memory if /dev/shm is writable; deleted at the end of the block."""
    base = Path("/dev/shm")
    folder = Path(mkdtemp(prefix="berth-", dir=base if os.access(base, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_key(path: Path) -> str:
    """Make an ed25519 key pair at `path`; returns the public key as one line without a comment."""
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)])
    return path.with_name(path.name + ".pub").read_text("utf-8").strip()


def public_key(path: Path) -> str:
    """The public key of the private one at `path`, as one line; JobError if it has a passphrase."""
    return _run(["ssh-keygen", "-y", "-P", "", "-f", str(path)]).strip()


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise JobError(
            f"{command[0]} is not in the image; install openssh-client and openssh-server for jobs with several hosts."
        ) from error
    except subprocess.CalledProcessError as error:
        raise JobError(
            f"{command[0]} failed ({error.stderr.strip()}); check that the container may write to /dev/shm or /tmp."
        ) from error
    return done.stdout


def sshd_config(folder: Path, port: int) -> str:
    """Settings of a worker's sshd: keys only, no passwords, no forwarding, independent of the system's sshd."""
    return "\n".join(
        [
            f"Port {port}",
            f"HostKey {folder / 'host_key'}",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}",
            "PidFile none",
            "UsePAM no",
            # The folder is private, but the checks would fail because of the mode of /dev/shm above it.
            "StrictModes no",
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PermitUserEnvironment no",
            "DisableForwarding yes",
            # mpirun must be able to connect while others hold connections open: by default sshd refuses 30 % of new
            # ones from the tenth on, and gives each two minutes to log in.
            "MaxStartups 200",
            "LoginGraceTime 20",
            "PrintMotd no",
            "LogLevel ERROR",
            "",
        ]
    )


def authorized_key(public_key: str, addresses: Iterable[str]) -> str:
    """A line of authorized_keys: the key is valid from these addresses only, without forwarding."""
    return f'restrict,from="{",".join(sorted(addresses))}" {public_key}\n'


def session_script(environ: Mapping[str, str]) -> str:
    """A script for sshd's ForceCommand: adds this environment to the session's and runs the client's command."""
    names = sorted(name for name in environ if _VARIABLE.fullmatch(name) and name not in _SHELL_VARIABLES)
    exports = "".join(f"export {name}={shlex.quote(environ[name])}\n" for name in names)
    return f'{exports}exec "${{SHELL:-/bin/sh}}" -c "$SSH_ORIGINAL_COMMAND"\n'


def client_config(folder: Path, leader: Leader) -> str:
    """The leader's ssh settings, so that both ends use the addresses of the worker's rendezvous connection and ssh
    accepts only the host key that the worker sent.
    """
    lines: list[str] = []
    for host, worker in leader.introductions.items():
        lines += [
            f"Host {host}",
            f"  HostName {leader.connections[host].address}",
            f"  BindAddress {leader.connections[host].own_address}",
            f"  Port {worker.ssh_port}",
            f"  HostKeyAlias {host}",
        ]
    lines += [
        "Host *",
        f"  IdentityFile {folder / 'job_key'}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {folder / 'known_hosts'}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  BatchMode yes",
        "  ConnectTimeout 10",
        "  LogLevel ERROR",
        "",
    ]
    return "\n".join(lines)


def write_client_files(folder: Path, leader: Leader) -> str:
    """Make the job's key and write the leader's ssh files for mpirun; returns the public key."""
    key = make_key(folder / "job_key")
    known_hosts = [f"{host} {worker.host_key}\n" for host, worker in leader.introductions.items()]
    (folder / "known_hosts").write_text("".join(known_hosts), "utf-8")
    (folder / "ssh_config").write_text(client_config(folder, leader), "utf-8")
    return key


class SshServer:
    """A worker's sshd. Call `start` before joining the leader, and `allow` when the leader's key is known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host_key = make_key(folder / "host_key")
        self.port = free_port(0)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start sshd and wait until it accepts connections (well under a second). JobError if it doesn't."""
        program = shutil.which(REAL_SSHD) or shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if program is None:
            raise JobError(
                "sshd is not in the image; install openssh-server for jobs with several hosts (the kit's image has it)."
            )
        # sshd refuses to start without this folder, which Debian creates only at boot.
        Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        config = self.folder / "sshd_config"
        config.write_text(sshd_config(self.folder, self.port), "utf-8")
        log = self.folder / "sshd.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [program, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not _accepts(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise JobError(
                    f"sshd did not start ({log.read_text('utf-8', 'replace').strip() or 'no reason given'}); run the "
                    "image as root."
                )
            time.sleep(0.02)

    def allow(self, public_key: str, address: str) -> None:
        """Accept the leader's key, from its own address only."""
        path = self.folder / "authorized_keys"
        path.write_text(authorized_key(public_key, [address]), "utf-8")
        path.chmod(0o600)

    def stop(self) -> None:
        """End sshd. Its sessions end with the container."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_port(preferred: int) -> int:
    """`preferred` if that port is free, otherwise another free one."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise JobError("no TCP port is free on this host; end the processes that use them.")


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
