"""Hosts exchange ssh keys over real sockets, and write the files for sshd and ssh."""

import os
import stat
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from berth.contract.errors import JobError
from berth.runtime.software import kit_version
from berth.train.hosts import ssh
from berth.train.hosts.ssh import free_port
from berth.train.sdk3.keys import Peer, PublicKeys, exchange, make_keys, write_ssh_files
from berth.train.sdk3.sshd import prepare
from tests.unit.train.hosts.hosts_here import LEADER, WORKER

KEYS = {
    LEADER: PublicKeys("leader's host key", "leader's key"),
    WORKER: PublicKeys("worker's host key", "worker's key"),
}


def exchange_keys(hosts: Sequence[str], timeout: float = 5.0) -> dict[str, list[Peer] | str]:
    """Exchange keys between the hosts of KEYS; returns each host's peers, or its error."""
    port = free_port(0)
    results: dict[str, list[Peer] | str] = {}

    def run(host: str) -> None:
        try:
            results[host] = exchange(host, hosts, KEYS[host], timeout, port)
        except JobError as error:
            results[host] = str(error)

    threads = [threading.Thread(target=run, args=(host,), daemon=True) for host in hosts if host in KEYS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout + 10)
    return results


def test_leader_and_worker_exchange_keys() -> None:
    assert exchange_keys([LEADER, WORKER]) == {
        LEADER: [Peer(WORKER, LEADER, KEYS[WORKER])],
        WORKER: [Peer(LEADER, LEADER, KEYS[LEADER])],
    }


def test_single_host_exchanges_no_keys() -> None:
    assert exchange_keys([LEADER]) == {LEADER: []}


@pytest.mark.slow
def test_missing_host_is_named_on_all_hosts() -> None:
    results = exchange_keys([LEADER, WORKER, "algo-3"], timeout=1.0)
    assert str(results[LEADER]).startswith(f"host algo-3 did not join the leader {LEADER} within 1 s")
    assert results[WORKER] == results[LEADER]


def test_hosts_with_different_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.train.sdk3.keys.kit_version", lambda: "0.0")
    results = exchange_keys([LEADER, WORKER])
    assert results[LEADER] == results[WORKER]
    assert results[LEADER] == (
        f"{WORKER} has version 0.0 of the kit but {LEADER} {kit_version()}; give all hosts one image."
    )


def test_existing_client_key_is_reused(tmp_path: Path) -> None:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "keys").mkdir()
    existing_key = ssh.make_key(tmp_path / "home" / ".ssh" / "id_ed25519")
    assert make_keys(tmp_path / "keys", tmp_path / "home").client_key == existing_key


def test_client_key_with_passphrase_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / ".ssh" / "id_ed25519")]
    subprocess.run(command, check=True)
    with pytest.raises(JobError, match=r"^ssh-keygen failed \(.*incorrect passphrase"):
        make_keys(tmp_path, tmp_path)


def test_ssh_files_accept_peer_and_are_private(tmp_path: Path) -> None:
    folder, home = tmp_path / "keys", tmp_path / "home"
    folder.mkdir(mode=0o700)
    own = make_keys(folder, home)
    peer = Peer(LEADER, "10.0.0.7", PublicKeys("ssh-ed25519 HOST", "ssh-ed25519 CLIENT"))
    config = write_ssh_files(folder, home, [peer], {"SM_HOSTS": '["a"]'})
    assert (folder / "authorized_keys").read_text() == 'restrict,from="10.0.0.7,127.0.0.1" ssh-ed25519 CLIENT\n'
    assert (home / ".ssh" / "known_hosts").read_text() == "127.0.0.1 ssh-ed25519 HOST\n"
    assert config.read_text().endswith(f"ForceCommand /bin/sh {folder}/session\n")
    assert "\nUsePAM no\n" in config.read_text()
    private = [folder / "host_key", folder / "session", folder / "authorized_keys", home / ".ssh" / "id_ed25519"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert stat.S_IMODE((home / ".ssh").stat().st_mode) == 0o700
    assert (home / ".ssh" / "id_ed25519.pub").read_text().strip() == own.client_key


def test_ssh_session_has_exact_environment(tmp_path: Path) -> None:
    """/etc/environment would lose text after #, quotes, and all lines but the first."""
    values = {"SM_HPS": '{"text": "a # b \'c\' $HOME"}', "LINES": "one\ntwo", "EMPTY": "", "UMLAUT": "Zürich"}
    (tmp_path / "session").write_text(ssh.session_script(values | {"BASH_FUNC_f%%": "() { :; }", "SHLVL": "7"}))
    names = " ".join(values)
    script = f'for name in {names}; do printf "%s\\0" "${{!name}}"; done; test "$SHLVL" != 7'
    result = subprocess.run(
        ["/bin/sh", tmp_path / "session"],
        env={"SSH_ORIGINAL_COMMAND": script, "SHELL": "/bin/bash", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout.split("\0")[:-1], result.stderr) == (0, list(values.values()), "")


def test_sshd_hook_reads_variables_of_driver(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    environ = {"SM_CURRENT_HOST": LEADER, "SM_MASTER_ADDR": LEADER, "SM_HOSTS": f'["{LEADER}"]'}
    assert prepare(tmp_path / "keys", tmp_path / "home", environ).is_file()
    missing_host = {"SM_HOSTS": f'["algo-2", "{LEADER}"]', "BERTH_RENDEZVOUS_TIMEOUT": "0.1"}
    (tmp_path / "more").mkdir()
    with pytest.raises(JobError, match="host algo-2 did not join"):
        prepare(tmp_path / "more", tmp_path / "home", environ | missing_host, free_port(0))
