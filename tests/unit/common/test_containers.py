"""A container for one command, on a fake engine; tests/images/test_outdated.py uses a real one."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import APIError, ImageNotFound
from docker.types import Mount
from requests.exceptions import ConnectionError

from berth.common.containers import Access, CommandFailed, run_once
from berth.common.errors import UserError
from berth.images.inspect import debian
from berth.images.network.build_network import Network, PackageIndex
from tests.doubles.engine_double import engine_double

IMAGE = "berth-serve:cpu"
NETWORK = Network(None, PackageIndex(), (), "", "", "deb http://user:a-canary@mirror/debian bookworm main\n")


class FakeEngine:
    """An engine and its only container, which ends with `code`, fails to start (`start`) or does not end (`wait`)."""

    def __init__(self, code: int = 0, complaint: str = "", start: Exception | None = None, wait: Any = None) -> None:
        self.images = self.containers = self
        self.code, self.complaint, self.start_error, self.wait_error = code, complaint, start, wait
        self.created: dict[str, Any] = {}
        self.container_count, self.started = 0, False

    def get(self, name: str) -> None:
        if name != IMAGE:
            raise ImageNotFound(name)

    def create(self, image: str, command: list[str], **settings: Any) -> "FakeEngine":
        self.created = {"image": image, "command": command, **settings}
        self.container_count += 1
        return self

    def start(self) -> None:
        self.started = True
        if self.start_error:
            raise self.start_error

    def wait(self, timeout: float | None) -> dict[str, int]:
        if self.wait_error:
            raise self.wait_error
        return {"StatusCode": self.code}

    def attach(self, stream: bool, demux: bool) -> list[tuple[bytes | None, bytes | None]]:
        assert stream
        assert demux
        assert not self.started, "output before the attachment would be lost"
        return [(b"prin", None), (None, self.complaint.encode()), (b"ted\n", None)]

    def remove(self, force: bool, v: bool) -> None:
        assert force
        assert v
        self.container_count -= 1


def run_in_container(engine: Any, **settings: Any) -> bytes:
    return run_once(engine, IMAGE, ["python", "-c", "x"], **settings)


def test_container_is_isolated_by_default() -> None:
    engine = FakeEngine()
    assert run_in_container(engine) == b"printed\n"
    assert engine.container_count == 0
    assert engine.created.pop("labels")["berth.run"].startswith("once-")
    assert engine.created == {
        "image": IMAGE,
        "command": ["-c", "x"],
        "entrypoint": ["python"],
        "user": "0",
        "network_mode": "none",
        "devices": [],
        "mounts": [],
        "environment": {},
        "log_config": {"Type": "none", "Config": {}},
    }


def test_container_gets_the_given_access() -> None:
    engine, mount = FakeEngine(), Mount("/there", "/here", type="bind", read_only=True)
    run_in_container(engine, access=Access([mount], ["/dev/x"], "host", {"A": "b"}))
    created = engine.created
    assert (created["mounts"], created["devices"], created["network_mode"]) == ([mount], ["/dev/x:/dev/x"], "host")
    assert created["environment"] == {"A": "b"}


def test_failed_command_reports_exit_code_and_stderr() -> None:
    engine = FakeEngine(3, "first\nlast\n")
    with pytest.raises(
        CommandFailed, match=r"^`python` failed in berth-serve:cpu with exit code 3: first\nlast$"
    ) as bad:
        run_in_container(engine)
    assert (bad.value.code, bad.value.complaint, engine.container_count) == (3, "first\nlast", 0)


@pytest.mark.parametrize(
    ("engine", "error", "message"),
    [
        (FakeEngine(start=APIError("400", explanation="no such device")), APIError, "no such device"),
        (
            FakeEngine(wait=ConnectionError("Read timed out.")),
            UserError,
            r"^`python` does not finish in berth-serve:cpu: check the engine, then try again\.$",
        ),
    ],
    ids=["does-not-start", "times-out"],
)
def test_container_that_does_not_end_is_removed(engine: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run_in_container(engine, patience_s=1)
    assert engine.container_count == 0


@pytest.mark.parametrize(
    ("engine", "image", "sentence"),
    [
        pytest.param(
            FakeEngine(),
            "berth-serve:cu130",
            "there is no image berth-serve:cu130 here: build it with `python build.py build serve --profile cu130`.",
            id="no-image",
        ),
        pytest.param(
            FakeEngine(start=APIError("400", explanation="no such file")),
            IMAGE,
            "berth-serve:cpu can't be started to ask Debian's archive: no such file.",
            id="does-not-start",
        ),
        pytest.param(
            FakeEngine(100, "W: first\nE: Failed to fetch http://user:a-canary@mirror/debian  503\n"),
            IMAGE,
            "Debian's archive can't be asked for updates of berth-serve:cpu (E: Failed to fetch http://mirror/debian  "
            "503): look at the network, and at this machine's settings of apt, which a build uses as well.",
            id="fails",
        ),
        pytest.param(
            FakeEngine(100),
            IMAGE,
            "Debian's archive can't be asked for updates of berth-serve:cpu (exit code 100): look at the network, and "
            "at this machine's settings of apt, which a build uses as well.",
            id="fails-in-silence",
        ),
    ],
)
def test_debian_archive_errors_name_the_cause(engine: Any, image: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        debian.ask_archive(engine, image, NETWORK, tmp_path / "secrets")
    assert str(refusal.value) == sentence
    assert engine.container_count == 0


@pytest.mark.parametrize("code", [0, 3])
def test_run_once_returns_the_whole_output_through_the_sdk(code: int) -> None:
    """The output is larger than the megabyte at which some log drivers cut, and contains all byte values."""
    printed = bytes(range(256)) * 16384
    answers: dict[str, tuple[int, Any]] = {
        "POST /containers/create": (201, {"Id": "c0ffee"}),
        "GET /containers/c0ffee/json": (200, {"Id": "c0ffee", "Config": {"Tty": False}}),
        "POST /containers/c0ffee/start": (204, ""),
        "POST /containers/c0ffee/wait": (200, {"StatusCode": code}),
        "DELETE /containers/c0ffee": (204, ""),
    }
    with engine_double(answers, output=(printed, b"why\n")) as double:
        with contextlib.closing(DockerClient(base_url=double.host, timeout=10)) as client:
            if code:
                with pytest.raises(CommandFailed) as failed:
                    run_once(client, IMAGE, ["python"])
                assert (failed.value.code, failed.value.complaint) == (3, "why")
            else:
                assert run_once(client, IMAGE, ["python"]) == printed
    assert not any("logs" in request for request in double.requests)
    assert double.requests[-1] == "DELETE /containers/c0ffee"
