"""`probe` with fake engines."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from berth.common.containers import Access, CommandFailed
from berth.common.errors import UserError
from berth.images import probe
from berth.images.pins import pins
from berth.images.probe import ContainerTest
from tests.doubles.engine_double import VERSION, engine_double
from tests.doubles.programs import shell_program

Run = Callable[[Sequence[str]], bytes]


def fake_engine(
    monkeypatch: pytest.MonkeyPatch, hidden: Sequence[str] = (), fault: Exception | None = None
) -> list[int]:
    """Installs a fake engine that has one of berth's images and does not see the folders `hidden`; returns a list that
    gets the number of mounts of each container.
    """
    mount_counts: list[int] = []

    def run_once(client: Any, image: str, command: Sequence[str], access: Access, *, patience_s: float) -> bytes:
        mount_counts.append(len(access.mounts))
        if fault:
            raise fault
        for mount in access.mounts:
            if mount["Source"].startswith(tuple(hidden)) if hidden else False:
                raise APIError("400", explanation=f"bind source path does not exist: {mount['Source']}")
        return b"".join(Path(mount["Source"]).read_bytes() for mount in access.mounts)

    images = [SimpleNamespace(id="sha256:1")]
    client = SimpleNamespace(images=SimpleNamespace(list=lambda filters: images))
    monkeypatch.setattr(probe, "connect", lambda timeout_s: client)
    monkeypatch.setattr(probe, "run_once", run_once)
    return mount_counts


def test_one_container_reads_both_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    mount_counts = fake_engine(monkeypatch)
    assert probe._container("berth-base:bookworm") == ContainerTest("berth-base:bookworm")
    assert probe._container(None) == ContainerTest("sha256:1")
    assert mount_counts == [2, 2]


def test_folder_that_the_engine_does_not_share_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mount_counts = fake_engine(monkeypatch, hidden=[str(tmp_path)])
    found = probe._container("b")
    assert (found.error, list(found.unseen)) == ("", [str(tmp_path)])
    assert "bind source path does not exist" in found.unseen[str(tmp_path)]
    assert mount_counts == [2, 0, 1, 1]
    fake_engine(monkeypatch, hidden=[str(tmp_path), str(pins.ROOT)])
    assert set(probe._container("b").unseen) == {str(tmp_path), str(pins.ROOT)}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (CommandFailed("true", "b", 255, "exec /usr/bin/true: exec format error"), "exec format error"),
        (CommandFailed("true", "b", 139, ""), "exit code 139"),
        (APIError("400", explanation="no such runtime: x"), "no such runtime: x"),
        (UserError("`true` gives no answer in b: see that the engine is well."), "gives no answer"),
    ],
)
def test_reason_for_failed_container(fault: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine(monkeypatch, fault=fault)
    found = probe._container("b")
    assert reason in found.error
    assert found.unseen == {}


def test_container_test_is_skipped_without_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(images=SimpleNamespace(list=lambda filters: []))
    monkeypatch.setattr(probe, "connect", lambda timeout_s: client)
    assert probe._container(None) == ContainerTest()


def test_podman_is_recognised_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    version = {**VERSION, "Components": [{"Name": "Podman Engine"}]}
    with engine_double({"GET /version": (200, version), "GET /info": (200, {"ServerVersion": "5.4.2"})}) as double:
        monkeypatch.setenv("DOCKER_HOST", double.host)
        assert probe._engine() == ({"ServerVersion": "5.4.2"}, True, "")
        double.answers.pop("GET /info")
        engine, _, error = probe._engine()
    assert engine is None
    assert error.startswith("The Docker engine failed: ")


@pytest.mark.slow
@pytest.mark.parametrize("helper", ["", "exit 1", "echo hunter2", "echo hunter2; exit 1"])
def test_broken_credential_helper_is_reported_without_its_output(
    helper: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"credsStore": "berth-test"}')
    if helper:
        shell_program(tmp_path / "docker-credential-berth-test", helper)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with engine_double(otherwise=(404, {"message": "No such image"})) as double:
        monkeypatch.setenv("DOCKER_HOST", double.host)
        base, reason = probe._base()
    assert base is None
    assert "credential" in reason
    assert "hunter2" not in reason, "a helper's output may be a password"
