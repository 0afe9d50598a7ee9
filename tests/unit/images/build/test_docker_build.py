"""Running `docker build`: its log and its errors."""

import os
import stat
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images.build import docker_build
from berth.images.build.buildkit_log import Progress
from berth.images.build.plan import BuildPlan
from berth.images.pins import pins
from tests.doubles.engine_double import VERSION, engine_double
from tests.doubles.programs import shell_program


def test_log_is_written_unbuffered(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with docker_build._opened(log) as keep:
        keep("one é\n")
        assert log.read_text(encoding="utf-8") == "one é\n"
        keep("two\n")
    assert log.read_text(encoding="utf-8") == "one é\ntwo\n"


def test_unwritable_log_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(UserError, match=r"the build's log can't be written to .*/logs is not a folder"):
        with docker_build._opened(tmp_path / "logs" / "a.log"):
            pass


def test_full_disk_while_logging_is_reported() -> None:
    with pytest.raises(UserError, match=r"the disk of /dev is full, and the build's log does not fit: free some room"):
        with docker_build._opened(Path("/dev/full")) as keep:
            keep("one\n")


def failure_of(text: str) -> str:
    progress = Progress()
    for line in text.splitlines():
        progress.feed(line)
    return docker_build.failure_sentence(progress, text, Path("/a.log"))


FULL, STOPPED, OTHER = (
    "the disk of the Docker engine is full",
    "the Docker engine stopped",
    "the build failed before its",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ERROR: failed to solve: write /var/lib/docker/x: no space left on device", FULL),
        ("#9 0.5 error: No space left on device (os error 28)", FULL),
        ("ERROR: failed to copy: write /x: disk quota exceeded", FULL),
        (
            "ERROR: failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF",
            STOPPED,
        ),
        ("failed to receive status: rpc error: code = Unavailable desc = transport is closing", STOPPED),
        ("unexpected EOF", STOPPED),
        ("ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", STOPPED),
        ("ERROR: failed to solve: Canceled: context canceled", OTHER),
        ("ERROR: failed to solve: x: dial tcp 127.0.0.1:443: connect: connection refused", OTHER),
        ("#9 0.5 error: 503 Service Unavailable", OTHER),
    ],
)
def test_failure_sentence_for_full_disk_and_stopped_engine(text: str, expected: str) -> None:
    assert failure_of(text).startswith(expected)
    assert failure_of(text).endswith("/a.log")


def test_log_contains_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    client = shell_program(tmp_path / "docker", "echo 'error: https://me:s3cret@corp/simple/x gave 404'; exit 1")
    with pytest.raises(UserError) as refusal:
        docker_build.run_build(BuildPlan("train", "cpu", (), ("berth-test:x",), tmp_path), client, lambda *_: None)
    (log,) = (tmp_path / "logs").iterdir()
    assert "https://corp/simple/x gave 404" in log.read_text()
    assert "s3cret" not in log.read_text() + str(refusal.value)


def test_logs_are_readable_by_this_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    (tmp_path / "logs").mkdir(mode=0o755)
    log = docker_build._log_file(BuildPlan("train", "cpu", (), ("berth-test:x",), tmp_path))
    before = os.umask(0)
    try:
        with docker_build._opened(log) as keep:
            keep("a line\n")
    finally:
        os.umask(before)
    assert (stat.S_IMODE(log.stat().st_mode), stat.S_IMODE(log.parent.stat().st_mode)) == (0o600, 0o700)


@pytest.mark.parametrize(
    ("make", "message"), [("Podman Engine", "the engine is podman"), ("Engine", "unknown flag: --secret")]
)
def test_failed_build_on_podman_names_podman(
    make: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shell_program(tmp_path / "docker", "echo 'unknown flag: --secret'; exit 1")
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    plan = BuildPlan("train", "cpu", (), ("berth-train:x", "berth-train:cpu"), tmp_path)
    with engine_double({"GET /version": (200, {**VERSION, "Components": [{"Name": make}]})}) as double:
        monkeypatch.setenv("DOCKER_HOST", double.host)
        with pytest.raises(UserError, match=message):
            docker_build.run_build(plan, client, lambda *_: None)
