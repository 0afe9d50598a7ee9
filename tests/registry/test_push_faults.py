"""Faults during a push by the real engine: the message, and the bytes that are sent again."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from berth.common import engine
from berth.common.errors import UserError
from berth.ecr.push.context import PushContext
from berth.ecr.push.engine import push_with_retries, tagged
from berth.ecr.push.events import LayerState
from berth.ecr.registry.challenge import Credentials
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.references import Reference
from berth.ecr.registry.transport import Transport
from berth.images.pins import pins
from tests.registry import made_images
from tests.registry.engines import second_engine
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Registry
from tests.waiting import until

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
LAYERS, LAYER_BYTES = 4, 12_000_000
NAME = "berth-faults"


@pytest.fixture(scope="module")
def engine_client() -> docker.DockerClient:
    return engine.connect(timeout_s=300)


@pytest.fixture
def image(engine_client: docker.DockerClient, tmp_path: Path) -> Iterator[str]:
    """The ID of an image with four random layers, new for each test, so no registry has them."""
    lines = ["FROM scratch"]
    for number in range(LAYERS):
        (tmp_path / f"file-{number}").write_bytes(os.urandom(LAYER_BYTES))
        lines.append(f"COPY file-{number} /")
    (tmp_path / "Dockerfile").write_text("\n".join(lines))
    tag = f"berth-test:{tmp_path.name.replace('_', '-')}"
    subprocess.run(
        [str(engine.find_client()), "build", "--quiet", "--tag", tag, str(tmp_path)],
        env=engine.client_environment(os.environ),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    yield str(engine_client.images.get(tag).id)
    engine_client.images.remove(tag, force=True)


class Pushing:
    """Pushes an image through a fault proxy, and counts logins, tries and bytes."""

    def __init__(self, client: docker.DockerClient, image: str, proxy: FaultProxy) -> None:
        self.client, self.image, self.proxy = client, image, proxy
        self.lines: list[str] = []
        self.logins = 0
        self.tries = 0

    def login(self, *, renew: bool) -> Credentials:
        """Returns a new token at each renewal."""
        self.logins += renew
        return Credentials("AWS", f"token-{self.logins}")

    def __call__(self) -> frozenset[str]:
        """Pushes; returns the layers that were sent."""
        reference = Reference(self.proxy.host, NAME, "1")
        context = PushContext(self.client, threading.Event(), say=self.lines.append)
        self.tries = 0

        def login(*, renew: bool) -> Credentials:
            self.tries += 1
            return self.login(renew=renew)

        with tagged(self.client, self.image, reference):
            return push_with_retries(context, reference, login)

    def image_bytes(self) -> int:
        """The image's compressed bytes, each of which must be sent once."""
        manifest = Client(Transport(self.proxy.host, self.login)).manifest(NAME, "1")
        assert manifest is not None
        return sum(blob.size for blob in manifest.blobs)

    def sent_again(self) -> int:
        """Bytes that were sent more than once."""
        return self.proxy.uploaded() - self.image_bytes()


@pytest.fixture
def pushing(engine_client: docker.DockerClient, image: str, proxy: FaultProxy) -> Pushing:
    return Pushing(engine_client, image, proxy)


def test_push_without_faults_sends_each_byte_once(pushing: Pushing) -> None:
    sent = pushing()
    assert (len(sent), pushing.tries, pushing.lines) == (LAYERS, 1, [])
    assert pushing.proxy.uploaded() >= LAYERS * LAYER_BYTES
    assert pushing.sent_again() == 0


def test_token_that_expires_during_a_push_is_renewed(
    make_registry: Callable[..., Registry],
    make_proxy: Callable[..., FaultProxy],
    engine_client: docker.DockerClient,
    image: str,
) -> None:
    # The proxy accepts any token except an expired one, and sends its own to the registry.
    known = Credentials("AWS", "the registry's")
    pushing = Pushing(engine_client, image, make_proxy(make_registry(credentials=known), credentials=known))
    pushing.proxy.expire(after=2 * LAYER_BYTES)
    sent = pushing()
    assert len(sent) == LAYERS
    assert pushing.logins == 1
    assert "trying again with a new login" in pushing.lines[0]
    # The engine sends up to five layers at once; perhaps none was complete when the token expired.
    assert pushing.sent_again() <= pushing.image_bytes()


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (429, ": status 429; trying again in 1 s, "),
        (500, ": a layer does not get through; the engine tries it again by itself"),
        (503, ": a layer does not get through; the engine tries it again by itself"),
    ],
)
def test_push_waits_for_a_busy_registry(status: int, sentence: str, pushing: Pushing) -> None:
    pushing.proxy.answer(status, method="PATCH", skip=1, times=2, headers={"Retry-After": "1"})
    sent = pushing()
    assert len(sent) == LAYERS
    assert sentence in pushing.lines[0]


def test_broken_connection_sends_one_layer_again(pushing: Pushing) -> None:
    pushing.proxy.drop(after=LAYER_BYTES // 2)
    assert len(pushing()) == LAYERS
    assert pushing.sent_again() <= LAYER_BYTES


def test_push_continues_after_the_registry_restarts(pushing: Pushing, registry: Registry) -> None:
    def kill() -> None:
        until(lambda: pushing.proxy.uploaded() >= LAYER_BYTES)
        registry.kill()
        time.sleep(3)
        registry.start()

    killer = threading.Thread(target=kill)
    killer.start()
    sent = pushing()
    killer.join()
    assert len(sent) == LAYERS


def test_push_gives_up_and_the_next_one_continues(
    pushing: Pushing, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.ecr.push.engine.TRIES", 2)
    registry.kill()
    with pytest.raises(UserError):
        pushing()
    registry.start()
    assert len(pushing()) == LAYERS


def test_error_for_repository_deleted_during_a_push(pushing: Pushing) -> None:
    body = b'{"errors": [{"code": "NAME_UNKNOWN", "message": "The repository with name \'x\' does not exist"}]}'
    pushing.proxy.answer(404, method="PUT", path="/manifests/", body=body, headers={"Content-Type": "application/json"})
    with pytest.raises(UserError, match=r"does not exist, or no longer: push again"):
        pushing()
    assert pushing() == frozenset(), "the registry has all layers"


@pytest.mark.nightly
def test_push_after_a_full_disk_continues(
    make_registry: Callable[..., Registry],
    make_proxy: Callable[..., FaultProxy],
    engine_client: docker.DockerClient,
    image: str,
) -> None:
    small = make_registry(disk_bytes=LAYERS * LAYER_BYTES * 2)
    small.fill(LAYER_BYTES * 3 // 2)
    pushing = Pushing(engine_client, image, make_proxy(small))
    with pytest.raises(UserError, match=r"push again"):
        pushing()
    small.make_room()
    pushing()


def test_error_for_engine_killed_during_a_push(proxy: FaultProxy, tmp_path: Path) -> None:
    content, _ = made_images.layer(1, LAYER_BYTES)

    def kill(_: LayerState) -> None:
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    with second_engine(tmp_path) as other:
        other.api.import_image_from_data(content, repository="berth-test", tag="1")
        image = str(other.images.get("berth-test:1").id)
        place = Reference(proxy.host, NAME, "1")
        context = PushContext(other, threading.Event(), show=kill)
        with (
            pytest.raises(UserError, match=r"^the Docker engine went away"),
            tagged(other, image, place),
        ):
            push_with_retries(context, place, lambda *, renew: Credentials("AWS", "token"))


def test_ctrl_c_during_a_push_leaves_no_name_on_the_engine(
    proxy: FaultProxy, engine_client: docker.DockerClient, tmp_path: Path
) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "DOCKER_HOST") if name in os.environ}
    environment |= {"HOME": str(tmp_path), "BERTH_DIST": str(tmp_path / "dist")}
    command = [sys.executable, str(pins.ROOT / "build.py"), "push", "serve", "--profile", PROFILE, "--no-test"]
    process = subprocess.Popen(
        [*command, "--registry", proxy.host], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while proxy.uploaded() < 5_000_000 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert out == ""
    assert error.count("and the next push sends the others") == 1
    assert "Traceback" not in error
    assert not any(tag.startswith(proxy.host) for each in engine_client.images.list() for tag in each.tags)
    assert not (tmp_path / "dist" / "images.json").exists()
    second_push = subprocess.run(
        [*command, "--registry", proxy.host], env=environment, capture_output=True, text=True, timeout=300
    )
    assert second_push.returncode == 0, second_push.stderr
