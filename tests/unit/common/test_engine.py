"""The engine's address, Docker clients with BuildKit, and missing images."""

import hashlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound, NullResource
from requests import Response

from berth.common import engine
from berth.common.engine import drives_buildkit, find_client, find_image
from berth.common.errors import UserError
from tests.doubles.engine_double import engine_double


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


def client(folder: Path, version: str) -> Path:
    folder.mkdir()
    path = folder / "docker"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit 0\nexit 1\n')
    path.chmod(0o755)
    return path


def test_find_client_skips_clients_without_buildkit(tmp_path: Path) -> None:
    client(tmp_path / "new", "Docker version 28.2.2, build 0")
    client(tmp_path / "podman", "podman version 5.4.2")
    old = client(tmp_path / "old", "Docker version 20.10.24, build 0")
    assert find_client(os.pathsep.join(str(tmp_path / each) for each in ("new", "podman", "old"))) == old


def test_error_names_clients_without_buildkit(tmp_path: Path) -> None:
    found = client(tmp_path / "new", "Docker version 28.2.2, build 0")
    with pytest.raises(UserError, match="drives BuildKit") as refusal:
        find_client(str(tmp_path / "new"))
    assert f"{found} (28.2.2)" in str(refusal.value)


def test_error_names_podman_installed_as_docker(tmp_path: Path) -> None:
    found = client(tmp_path / "podman", "podman version 5.4.2")
    with pytest.raises(UserError) as refusal:
        find_client(str(tmp_path / "podman"))
    assert str(refusal.value) == (
        f"{found} (podman version 5.4.2) is podman, which has no BuildKit: install Docker's own client and engine, and "
        "put the client before it on PATH."
    )


def test_error_without_any_docker_client(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no `docker` command on PATH"):
        find_client(str(tmp_path))


def fake_engine(error: Exception) -> Any:
    """An engine that raises `error` for every image."""

    def get(name: str) -> Any:
        raise error

    return SimpleNamespace(images=SimpleNamespace(get=get))


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
        find_image(fake_engine(ImageNotFound("no such image")), name, ["cpu", "cu130"])
    assert str(refusal.value) == f"there is no image {name} here: {what_to_do}"


def answer(status: int, explanation: str) -> APIError:
    response = Response()
    response.status_code = status
    return APIError("refused", response=response, explanation=explanation)


@pytest.mark.parametrize(
    ("name", "error"), [("B", answer(400, "invalid reference format")), ("", NullResource("no id"))]
)
def test_error_for_invalid_image_name(name: str, error: Exception) -> None:
    with pytest.raises(UserError) as refusal:
        find_image(fake_engine(error), name)
    assert str(refusal.value) == f"{name!r} is not an image: pass the name, tag or ID of one on this engine."


@pytest.mark.parametrize("status", [403, 500, 503])
def test_engine_failure_is_not_reported_as_missing_image(status: int) -> None:
    with pytest.raises(APIError):
        find_image(fake_engine(answer(status, "input/output error")), "berth-train:cpu")


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`docker_config("colima", Host=…)` writes a context to the folder of Docker's client; DOCKER_HOST is unset."""
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def write(context: str, **endpoint: Any) -> None:
        folder = tmp_path / "contexts/meta" / hashlib.sha256(context.encode()).hexdigest()
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text(json.dumps({"Name": context, "Endpoints": {"docker": endpoint}}))

    return write


def use_context(folder: Path, context: str) -> None:
    (folder / "config.json").write_text(json.dumps({"currentContext": context}))


@pytest.mark.parametrize("how", ["in-use", "by-variable"])
def test_connect_uses_the_docker_context(
    how: str, docker_config: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_double() as double:
        docker_config("colima", Host=double.host, SkipTLSVerify=False)
        if how == "in-use":
            use_context(tmp_path, "colima")
        else:
            monkeypatch.setenv("DOCKER_CONTEXT", "colima")  # a config.json is not needed
        assert engine.connect().version()["Version"] == "24.0.0"
        # A pull has its own client with its own time-out.
        with pytest.raises(APIError, match="input/output error"):
            engine.pull("debian:12", 5)
    assert double.requests[-1] == "POST /images/create"


def test_docker_host_overrides_the_docker_context(
    docker_config: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_config("colima", Host="unix:///nowhere/colima.sock")
    use_context(tmp_path, "colima")
    with engine_double() as double:
        monkeypatch.setenv("DOCKER_HOST", double.host)
        assert engine.connect().ping()


def test_error_names_context_without_running_engine(docker_config: Callable[..., None], tmp_path: Path) -> None:
    docker_config("colima", Host="unix:///nowhere/colima.sock")
    use_context(tmp_path, "colima")
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
    use_context(tmp_path, "colima")
    if malformed:
        docker_config("colima", Host="x")
        next(tmp_path.rglob("meta.json")).write_text("{")
    with pytest.raises(UserError, match=f"^{beginning} Docker context 'colima'.*`docker context ls`"):
        engine.connect()


def test_context_uses_its_own_tls_keys(docker_config: Callable[..., None], tmp_path: Path) -> None:
    docker_config("remote", Host="tcp://engine.corp:2376", SkipTLSVerify=False)
    use_context(tmp_path, "remote")
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
