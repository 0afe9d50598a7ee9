"""A private sshd on each worker, for mpirun only, and the leader's client settings for it.

Keys are made when the job starts, live in a folder of their own in memory, and die with it. The leader's public key and
the workers' host keys travel over the rendezvous, so nobody has to answer yes and nothing is baked into the image.
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
from berth.train.hosts.rendezvous import Introduction, Leader
from berth.train.startup.sdk3_driver import REAL_SSHD

_START_SECONDS = 10.0
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SHELL_VARIABLES = frozenset({"_", "PWD", "OLDPWD", "SHLVL"})


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only we can read, in memory where /dev/shm is there; gone with the block."""
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
            f"{command[0]} is not in the image; install openssh-client and openssh-server for jobs of several hosts."
        ) from error
    except subprocess.CalledProcessError as error:
        raise JobError(
            f"{command[0]} failed ({error.stderr.strip()}); check that the container may write to /dev/shm or /tmp."
        ) from error
    return done.stdout


def sshd_config(folder: Path, port: int) -> str:
    """Settings of a worker's sshd: keys only, no passwords, no forwarding, nothing of the system's own sshd."""
    return "\n".join(
        [
            f"Port {port}",
            f"HostKey {folder / 'host_key'}",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}",
            "PidFile none",
            "UsePAM no",
            # The folder is ours and private; the checks would stumble over the modes of /dev/shm above it.
            "StrictModes no",
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PermitUserEnvironment no",
            "DisableForwarding yes",
            # mpirun must get in while others hold connections open: by default sshd turns one in three away from ten
            # on, and lets each say nothing for two minutes.
            "MaxStartups 200",
            "LoginGraceTime 20",
            "PrintMotd no",
            "LogLevel ERROR",
            "",
        ]
    )


def authorized_key(public_key: str, addresses: Iterable[str]) -> str:
    """A line of authorized_keys: who has the key may come from these addresses, and forward nothing."""
    return f'restrict,from="{",".join(sorted(addresses))}" {public_key}\n'


def session_script(environ: Mapping[str, str]) -> str:
    """For sshd's ForceCommand: runs what was asked for, with this environment next to the session's own variables."""
    names = sorted(name for name in environ if _VARIABLE.fullmatch(name) and name not in _SHELL_VARIABLES)
    exports = "".join(f"export {name}={shlex.quote(environ[name])}\n" for name in names)
    return f'{exports}exec "${{SHELL:-/bin/sh}}" -c "$SSH_ORIGINAL_COMMAND"\n'


def client_config(folder: Path, leader: Leader) -> str:
    """The leader's ssh settings: each worker by the address that it joined from, from the address that it joined at,
    and by no other key than the one it sent.
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


def known_hosts(workers: Mapping[str, Introduction]) -> str:
    """One line a worker: its name and the host key that it sent."""
    return "".join(f"{host} {worker.host_key}\n" for host, worker in workers.items())


class SshServer:
    """A worker's sshd. `start` before meeting the leader, `allow` once the leader's key is known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host_key = make_key(folder / "host_key")
        self.port = free_port(0)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start sshd and wait until it answers (well under a second); JobError if it doesn't."""
        program = shutil.which(REAL_SSHD) or shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if program is None:
            raise JobError(
                "sshd is not in the image; install openssh-server for jobs of several hosts (the kit's image has it)."
            )
        # sshd refuses to start without it, and Debian makes it at boot only.
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
        """Let the leader in, from its own address only."""
        path = self.folder / "authorized_keys"
        path.write_text(authorized_key(public_key, [address]), "utf-8")
        path.chmod(0o600)

    def stop(self) -> None:
        """End sshd; the sessions that it serves end by themselves when the container does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_port(preferred: int) -> int:
    """`preferred` if nobody listens there, else a free one."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise JobError("no TCP port is free on this host; end what holds them.")


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
