"""The engine's address, Docker clients with BuildKit, and missing images."""

import hashlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from docker.errors import APIError, ImageNotFound, NullResource

from berth.common import engine
from berth.common.engine import drives_buildkit, find_client, find_image
from berth.common.errors import UserError
from tests.doubles.engine_double import api_error, engine_double
from tests.doubles.programs import shell_program


@pytest.mark.parametrize(
    ("version", "buildx", "drives"),
    [
        ("20.10.24+dfsg1", False, True),
        ("18.06.1", False, False),
        ("28.2.2", False, False),
        ("28.2.2", True, True),
        ("", True, False),
    ],
)
def test_drives_buildkit(version: str, buildx: bool, drives: bool) -> None:
    assert drives_buildkit(version, lambda: buildx) is drives


CLIENTS = {
    "new": "Docker version 28.2.2, build 0",
    "podman": "podman version 5.4.2",
    "old": "Docker version 20.10.24, build 0",
}


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """A folder with a folder for each of CLIENTS, which has a program `docker`."""
    for name, version in CLIENTS.items():
        (tmp_path / name).mkdir()
        shell_program(tmp_path / name / "docker", f'[ "$1" = --version ] && echo "{version}" && exit 0\nexit 1')
    return tmp_path


def test_find_client_skips_clients_without_buildkit(clients: Path) -> None:
    path = os.pathsep.join(str(clients / each) for each in ("new", "podman", "old"))
    assert find_client(path) == clients / "old" / "docker"


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        pytest.param("new", ["drives BuildKit", "docker (28.2.2)"], id="without-buildx"),
        pytest.param("podman", ["docker (podman version 5.4.2) is podman, which has no BuildKit"], id="podman"),
        pytest.param("none", ["no `docker` command on PATH"], id="none"),
    ],
)
def test_error_names_clients_without_buildkit(name: str, facts: list[str], clients: Path) -> None:
    with pytest.raises(UserError) as refusal:
        find_client(str(clients / name))
    assert [fact for fact in facts if fact not in str(refusal.value)] == []


def raising(error: Exception) -> MagicMock:
    """An engine that raises `error` for every image."""
    return MagicMock(**{"images.get.side_effect": error})


@pytest.mark.parametrize(
    ("name", "what_to_do"),
    [
        ("berth-serve:cu130", "build it with `python build.py build serve --profile cu130`."),
        ("berth-train:cpu", "build it with `python build.py build train --profile cpu`."),
        ("berth-train:cu999", "give one that `docker images` lists."),
        ("berth-train:build-0.1.0-cpu-1a2b3c4d5e6f", "give one that `docker images` lists."),
        ("berth-train", "give one that `docker images` lists."),
        ("ghcr.io/berth-train:cpu", "give one that `docker images` lists."),
        ("nonsense", "give one that `docker images` lists."),
    ],
)
def test_error_for_missing_image_names_build_command(name: str, what_to_do: str) -> None:
    with pytest.raises(UserError) as refusal:
        find_image(raising(ImageNotFound("no such image")), name, ["cpu", "cu130"])
    assert str(refusal.value) == f"there is no image {name} here: {what_to_do}"


@pytest.mark.parametrize(
    ("name", "error"), [("B", api_error(400, "invalid reference format")), ("", NullResource("no id"))]
)
def test_error_for_invalid_image_name(name: str, error: Exception) -> None:
    with pytest.raises(UserError) as refusal:
        find_image(raising(error), name)
    assert str(refusal.value) == f"{name!r} is not an image: pass the name, tag or ID of one on this engine."


@pytest.mark.parametrize("status", [403, 500, 503])
def test_engine_failure_is_not_reported_as_missing_image(status: int) -> None:
    with pytest.raises(APIError):
        find_image(raising(api_error(status, "input/output error")), "berth-train:cpu")


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`docker_config("colima", Host=…)` writes a context that is in use; DOCKER_HOST is unset."""
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def write(context: str, **endpoint: Any) -> None:
        folder = tmp_path / "contexts/meta" / hashlib.sha256(context.encode()).hexdigest()
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text(json.dumps({"Name": context, "Endpoints": {"docker": endpoint}}))
        (tmp_path / "config.json").write_text(json.dumps({"currentContext": context}))

    return write


@pytest.mark.parametrize("how", ["in-use", "by-variable"])
def test_connect_uses_the_docker_context(
    how: str, docker_config: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_double() as double:
        docker_config("colima", Host=double.host, SkipTLSVerify=False)
        if how == "by-variable":
            (tmp_path / "config.json").unlink()
            monkeypatch.setenv("DOCKER_CONTEXT", "colima")
        assert engine.connect().version()["Version"] == "24.0.0"
        # A pull has its own client with its own time-out.
        with pytest.raises(APIError, match="input/output error"):
            engine.pull("debian:12", 5)
    assert double.requests[-1] == "POST /images/create"


def test_docker_host_overrides_the_docker_context(
    docker_config: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_config("colima", Host="unix:///nowhere/colima.sock")
    with engine_double() as double:
        monkeypatch.setenv("DOCKER_HOST", double.host)
        assert engine.connect().ping()


def test_error_names_context_without_running_engine(docker_config: Callable[..., None], tmp_path: Path) -> None:
    docker_config("colima", Host="unix:///nowhere/colima.sock")
    for ask in (engine.connect, lambda: engine.pull("debian:12", 5)):
        with pytest.raises(UserError) as refusal:
            ask()
        assert str(refusal.value) == (
            "no Docker engine answers at unix:///nowhere/colima.sock (Docker's context 'colima') (No such file or "
            "directory): start it, or take another context: `docker context ls` lists them, and `docker context use "
            "NAME` chooses one."
        )


@pytest.mark.parametrize(("malformed", "beginning"), [(False, "There is no"), (True, "The")])
def test_error_for_missing_or_malformed_context(
    malformed: bool, beginning: str, docker_config: Callable[..., None], tmp_path: Path
) -> None:
    docker_config("colima", Host="x")
    meta = next(tmp_path.rglob("meta.json"))
    if malformed:
        meta.write_text("{")
    else:
        meta.unlink()
    with pytest.raises(UserError, match=f"^{beginning} Docker context 'colima'.*`docker context ls`"):
        engine.connect()


def test_context_uses_its_own_tls_keys(docker_config: Callable[..., None], tmp_path: Path) -> None:
    docker_config("remote", Host="tcp://engine.corp:2376", SkipTLSVerify=False)
    keys = tmp_path / "contexts/tls" / hashlib.sha256(b"remote").hexdigest() / "docker"
    keys.mkdir(parents=True)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (keys / name).touch()
    tls = engine.address(os.environ).parameters["tls"]
    assert (tls.ca_cert, tls.cert, tls.verify) == (
        str(keys / "ca.pem"),
        (str(keys / "cert.pem"), str(keys / "key.pem")),
        True,
    )


def test_advice_names_the_socket_of_a_rootless_engine(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as rootless:
        rootless.bind(str(tmp_path / "run/docker.sock"))
        environ = {"DOCKER_CONFIG": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
        found = engine.address(environ)
    assert (found.name, found.parameters) == (engine.LOCAL_SOCKET, {})
    assert f"export DOCKER_HOST=unix://{tmp_path}/run/docker.sock" in found.advice


@pytest.mark.parametrize(
    ("host", "parts"),
    [
        (
            "tcp://127.0.0.1:9",
            ("no Docker engine answers at DOCKER_HOST=tcp://127.0.0.1:9", "refused", "unset DOCKER_HOST"),
        ),
        ("unix:///nowhere/engine.sock", ("DOCKER_HOST=unix:///nowhere/engine.sock (No such file or directory)",)),
        ("ssh://nobody@nowhere.invalid", ("DOCKER_HOST=ssh://nobody@nowhere.invalid", "ssh -NL")),
        ("nonsense://x", ("Docker's settings for DOCKER_HOST=nonsense://x can't be used",)),
    ],
)
def test_error_names_address_without_engine(host: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(UserError) as refusal:
        engine.connect()
    for part in parts:
        assert part in str(refusal.value)


def test_error_for_malformed_docker_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"auths": {"x": {"auth": 1}}}')
    with pytest.raises(UserError, match=r"^Docker's settings"):
        engine.connect()


@pytest.mark.parametrize(
    ("info", "store"),
    [
        ({"Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "extfs"]]}, "classic"),
        ({"Driver": "overlayfs", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}, "containerd"),
        ({"DriverStatus": None}, "classic"),
    ],
)
def test_image_store(info: dict[str, Any], store: str) -> None:
    assert engine.image_store(info) == store


def test_is_podman() -> None:
    assert engine.is_podman({"Components": [{"Name": "Podman Engine", "Version": "5.4.2"}]})
    assert not engine.is_podman({"Components": [{"Name": "Engine"}, {"Name": "containerd"}]})
    assert not engine.is_podman({})
