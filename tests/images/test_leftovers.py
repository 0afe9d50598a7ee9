"""Leftovers of runs on the engine, and the owner of files that a run wrote."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from docker.types import Mount

from berth.common import owner
from berth.common.containers import Access, run_once
from berth.images.pins import pins
from berth.local import cleanup
from berth.local.chown import FolderSnapshot, chown_new_files

COLLEAGUE = 4242


def ended_owner() -> owner.Owner:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(owner.this_process(), pid=child.pid)


def test_network_that_the_engine_keeps_is_only_a_warning(client: docker.DockerClient, profile: pins.Profile) -> None:
    image = f"berth-train:{profile.name}"
    network = client.networks.create("berth-test-stuck", labels=ended_owner().labels("stuck"))
    # While a container uses the network, Docker 20.10 refuses with 403 and newer versions with 409.
    user_container = client.containers.run(image, ["300"], entrypoint=["sleep"], network=network.name, detach=True)
    lines: list[str] = []
    try:
        cleanup.remove_stale_runs(client, image, lines.append)
        assert client.networks.list(names=[network.name])
        (warning,) = lines
        assert warning.startswith("Warning: the engine did not remove the network berth-test-stuck (")
        assert "systemctl restart docker" in warning
    finally:
        user_container.remove(force=True)
    lines.clear()
    cleanup.remove_stale_runs(client, image, lines.append)
    assert lines == ["Removed 1 container(s) and network(s) that the run stuck had left behind."]
    assert not client.networks.list(names=[network.name])


@pytest.fixture
def as_root(client: docker.DockerClient, profile: pins.Profile, tmp_path: Path) -> Callable[[str], None]:
    """Runs a shell script as root in a container with `tmp_path` mounted at /folder."""

    def run(line: str) -> None:
        mounts = [Mount("/folder", str(tmp_path), type="bind")]
        run_once(client, f"berth-train:{profile.name}", ["sh", "-c", line], Access(mounts))

    return run


def test_only_files_of_the_run_change_their_owner(
    client: docker.DockerClient,
    profile: pins.Profile,
    tmp_path: Path,
    as_root: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    me = os.getuid() or 54321
    monkeypatch.setattr(os, "getuid", lambda: me)
    as_root(
        f"cd /folder && mkdir theirs && touch of-root theirs/of-a-colleague && chown {COLLEAGUE} theirs/of-a-colleague"
    )
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    as_root("mv /folder/of-root /folder/theirs /folder/checkpoints && touch /folder/outside/untouched")
    before = FolderSnapshot.take(folder)
    as_root(
        "cd /folder/checkpoints && mkdir checkpoint-1 && touch checkpoint-1/model && chmod 700 checkpoint-1 "
        "&& echo more >> of-root && ln -s ../outside/untouched link && ln -s ../outside way"
    )
    chown_new_files(client, f"berth-train:{profile.name}", before)
    as_root("chmod -R a+rx /folder")
    owners = {path.relative_to(folder).as_posix(): path.lstat().st_uid for path in folder.rglob("*")}
    assert owners == {
        "checkpoint-1": me,
        "checkpoint-1/model": me,
        "link": me,
        "way": me,
        "of-root": 0,
        "theirs": 0,
        "theirs/of-a-colleague": COLLEAGUE,
    }
    assert (tmp_path / "outside/untouched").lstat().st_uid == 0
    as_root(f"chown -hR {me} /folder/*")
