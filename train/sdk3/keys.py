"""Makes, exchanges and writes the ssh keys of a job under SDK v3's MPI driver.

The driver needs ssh from the leader to every worker and back, but provides no keys. Each host makes a host key and a
client key. Workers send the public halves in `hello`, the leader in `welcome` (berth.train.hosts.rendezvous). Each side
accepts the other's key only from the addresses of its name and of its connection.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from berth.contract.errors import JobError
from berth.runtime.software import kit_version
from berth.train.hosts import ssh
from berth.train.hosts.events import Events, Lost, Message
from berth.train.hosts.lookup import resolve
from berth.train.hosts.outcome import Outcome, failed, outcome_fields, read_outcome
from berth.train.hosts.rendezvous import PORT, Introduction, Leader, join
from berth.train.hosts.wire import HostConnection
from berth.train.launching.host import check_alike


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The public halves of a host's keys, each one line in OpenSSH's format."""

    host_key: str
    client_key: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A host that this one has met, and the address of its connection."""

    name: str
    address: str
    keys: PublicKeys


def make_keys(folder: Path, home: Path) -> PublicKeys:
    """Make this host's keys: the host key in `folder`, the client key where ssh and paramiko look for it.

    An existing client key of the image's user is reused. JobError if this fails.
    """
    ssh_folder = home / ".ssh"
    ssh_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    client = ssh_folder / "id_ed25519"
    return PublicKeys(
        host_key=ssh.make_key(folder / "host_key"),
        client_key=ssh.public_key(client) if client.exists() else ssh.make_key(client),
    )


def exchange(
    host: str, hosts: Sequence[str], own: PublicKeys, timeout: float, port: int = PORT, interface: str = ""
) -> list[Peer]:
    """Exchange keys with the other hosts; returns the hosts met: the leader meets every worker, a worker the leader.

    hosts: the first one leads. timeout: in seconds. interface: a worker connects from its address unless it is empty.
    Raises JobError with the sentence that all hosts report.
    """
    if host == hosts[0]:
        return _lead(host, hosts[1:], own, timeout, port)
    introduction = Introduction(host, 1, version=kit_version(), **asdict(own))
    events: Events = SimpleQueue()
    return [_follow(join(hosts[0], introduction, events, timeout, port, interface), events)]


def _lead(host: str, workers: Sequence[str], own: PublicKeys, timeout: float, port: int) -> list[Peer]:
    events: Events = SimpleQueue()
    leader = Leader(host, workers, events, port)
    outcome = failed(f"{host} could not exchange ssh keys; look at that host's own log.", host)
    try:
        leader.gather(timeout)
        check_alike(1, "", leader.introductions, host)
        leader.broadcast("welcome", master_port=0, **asdict(own))
        outcome = Outcome(0)
        return [
            Peer(name, leader.connections[name].address, PublicKeys(worker.host_key, worker.client_key))
            for name, worker in leader.introductions.items()
        ]
    except JobError as error:
        outcome = failed(str(error), host)
        raise
    finally:
        leader.dismiss(outcome_fields(outcome, time.time()), time.monotonic())


def _follow(connection: HostConnection, events: Events) -> Peer:
    leader = connection.host
    peer = None
    try:
        while True:
            match events.get():
                case Message(kind="welcome", fields=fields):
                    peer = Peer(leader, connection.address, PublicKeys(fields["host_key"], fields["client_key"]))
                case Message(kind="outcome", fields=fields):
                    connection.send("bye")
                    report = read_outcome(fields, time.time()).report
                    if report is not None:
                        raise JobError(report.sentence)
                    if peer is not None:
                        return peer
                case Lost(reason=reason):
                    raise JobError(f"the leader {leader} was lost ({reason}); look at that host's own log.")
    finally:
        connection.close()


def write_ssh_files(folder: Path, home: Path, peers: Sequence[Peer], environ: Mapping[str, str]) -> Path:
    """Accept the peers' keys here, in sessions with `environ`, and trust their host keys; returns the sshd_config."""
    allowed = [ssh.authorized_key(peer.keys.client_key, {peer.address, *resolve(peer.name)}) for peer in peers]
    _write_private(folder / "authorized_keys", "".join(allowed))
    with (home / ".ssh" / "known_hosts").open("a", encoding="utf-8") as known_hosts:
        known_hosts.writelines(f"{peer.name} {peer.keys.host_key}\n" for peer in peers)
    session = _write_private(folder / "session", ssh.session_script(environ))
    config = folder / "sshd_config"
    config.write_text(f"{ssh.sshd_config(folder, 22)}ForceCommand /bin/sh {session}\n", "utf-8")
    return config


def _write_private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text, "utf-8")
    return path
