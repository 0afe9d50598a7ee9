"""Transfers of blobs and manifests to and from the real distribution registry, with faults simulated by a proxy."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import ClassVar

import pytest

from berth.ecr.registry import transport
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.transport import Transport
from tests.doubles.http_server import QuietHandler, serving
from tests.registry import made_images
from tests.registry.blobs import BLOB, DIGEST, MISSING, PART, content, send
from tests.registry.conftest import MakeClient, MakeRegistry, Waits, no_login, refusal
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Registry

pytestmark = pytest.mark.usefixtures("small_parts")


def test_blob_is_uploaded_in_parts_and_read(client: Client) -> None:
    arrived: list[int] = []
    assert client.blob_size("a/b", DIGEST) is None
    send(client, sent=arrived.append)
    assert arrived == [0, PART, 2 * PART, 3 * PART, len(BLOB), len(BLOB)]
    assert client.blob_size("a/b", DIGEST) == len(BLOB)
    assert content(client) == BLOB
    assert client.blob("a/b", DIGEST) == BLOB


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1])
def test_blobs_of_any_size(client: Client, size: int) -> None:
    digest = client.put_blob("a/b", BLOB[:size])
    assert client.blob_size("a/b", digest) == size
    assert client.blob("a/b", digest) == BLOB[:size]


def test_small_blob_is_sent_with_one_put(proxy: FaultProxy, client_of: MakeClient) -> None:
    client_of(proxy).put_blob("a/b", BLOB[:PART])
    assert (proxy.count("PATCH"), proxy.count("PUT"), proxy.uploaded("PUT")) == (0, 1, PART)


def test_manifests_and_tags_and_missing_ones(client: Client) -> None:
    image = made_images.image()
    assert client.manifest("a/b", "1") is None
    assert client.tags("a/b") == []
    assert made_images.put(client, "a/b", "1", image) == image.manifest.digest
    assert client.put_manifest("a/b", "2", image.manifest) == image.manifest.digest
    assert client.manifest("a/b", "1") == image.manifest
    assert client.manifest("a/b", image.manifest.digest) == image.manifest
    assert client.manifest("a/b", MISSING) is None
    assert sorted(client.tags("a/b")) == ["1", "2"]
    assert client.referrers("a/b", image.manifest.digest) is None


def test_delete_tag_returns_false_if_unsupported(client: Client) -> None:
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    assert client.delete_tag("a/b", "1") is False
    assert client.manifest("a/b", "1") == image.manifest


def test_tags_follows_pages(proxy: FaultProxy, client_of: MakeClient) -> None:
    """The distribution registry 2.8 has no pages, so the proxy answers."""
    first = json.dumps({"name": "a/b", "tags": ["1"]}).encode()
    second = json.dumps({"name": "a/b", "tags": ["2", "3"]}).encode()
    link = {"Link": '</v2/a/b/tags/list?last=1&n=2>; rel="next"'}
    proxy.answer(200, path="tags/list$", headers=link, body=first)
    proxy.answer(200, path="tags/list.last=1&n=2$", body=second)
    assert client_of(proxy).tags("a/b") == ["1", "2", "3"]


def test_mount_blob(client: Client, proxy: FaultProxy, client_of: MakeClient) -> None:
    send(client)
    mounting = client_of(proxy)
    assert mounting.mount_blob("other", DIGEST, "a/b") is True
    assert content(client, repository="other") == BLOB
    assert mounting.mount_blob("other", MISSING, "a/b") is False
    assert proxy.uploaded() == 0


# Faults of the network and of the registry.


@pytest.fixture
def until_noticed(registry: Registry, waits: Waits) -> Callable[[float], None]:
    """A `sleep` that waits until the registry has noticed the lost connection; real waits are longer."""

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        registry.until_logged('err.detail="client disconnected"')

    return sleep


@pytest.mark.parametrize("after", [0, 50_000])
def test_dropped_connection_restarts_the_blob(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, until_noticed: Callable[[float], None], after: int
) -> None:
    proxy.drop(after=after, skip=2)
    arrived: list[int] = []
    send(client_of(proxy, sleep=until_noticed), sent=arrived.append)
    assert content(client_of(proxy)) == BLOB
    assert arrived == [0, PART, 2 * PART, 0, PART, 2 * PART, 3 * PART, len(BLOB), len(BLOB)]
    assert proxy.uploaded() == 2 * PART + after + len(BLOB)
    assert waits == [1]


@pytest.mark.parametrize(
    ("method", "skip", "sent_again"),
    [
        pytest.param("PATCH", 1, 2 * PART, id="restarts-the-blob"),
        pytest.param("PUT", 0, 0, id="last-answer-is-detected"),
    ],
)
def test_lost_answer(
    method: str, skip: int, sent_again: int, proxy: FaultProxy, client_of: MakeClient, waits: Waits
) -> None:
    proxy.drop(after=None, method=method, skip=skip)
    send(client_of(proxy))
    assert content(client_of(proxy)) == BLOB
    assert proxy.uploaded() == sent_again + len(BLOB)
    assert waits == [1]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_refused_part_restarts_the_blob(proxy: FaultProxy, client_of: MakeClient, waits: Waits, status: int) -> None:
    proxy.answer(status, method="PATCH", skip=1, times=2)
    send(client_of(proxy))
    assert content(client_of(proxy)) == BLOB
    assert proxy.uploaded() == len(BLOB) + 3 * PART
    assert waits == [1, 2]


def test_retry_after_sets_the_wait(proxy: FaultProxy, client_of: MakeClient, waits: Waits) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    proxy.answer(429, path="tags", headers={"Retry-After": "7"})
    proxy.answer(503, path="tags", skip=1, headers={"Retry-After": date})
    proxy.answer(503, path="tags", skip=2, headers={"Retry-After": "soon"})
    lines: list[str] = []
    body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}'
    proxy.answer(429, path="tags", skip=3, headers={"Retry-After": "0.5"}, body=body)
    assert client_of(proxy, say=lines.append).tags("a/b") == []
    assert [waits[0], waits[2], waits[3]] == [7, 4, 0.5]
    assert 50 < waits[1] <= 60
    assert lines[3] == f"{proxy.host}: TOOMANYREQUESTS: slow down; trying again in 0.5 s"


def test_too_long_retry_after_is_an_error(proxy: FaultProxy, client_of: MakeClient, waits: Waits) -> None:
    proxy.answer(429, path="tags", headers={"Retry-After": "3600"})
    sentence = refusal(lambda: client_of(proxy).tags("a/b"))
    assert sentence.startswith(f"{proxy.host} asks for a pause of 3600 s (429): run this again after that")
    assert waits == []


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(429, "gets too many requests (429)"), (503, "failed at the list of tags (503)")],
)
def test_requests_are_given_up_after_all_pauses(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, status: int, sentence: str
) -> None:
    proxy.answer(status, path="tags", times=99)
    assert sentence in refusal(lambda: client_of(proxy).tags("a/b"))
    assert waits == list(transport.PAUSES_S)


def test_upload_without_progress_is_given_up(proxy: FaultProxy, client_of: MakeClient, waits: Waits) -> None:
    proxy.drop(after=10, skip=2, times=99)
    assert "can't be reached" in refusal(lambda: send(client_of(proxy)))
    assert waits == list(transport.PAUSES_S)


class Halves(QuietHandler):
    """A registry whose first `halves` answers for a blob end half-way. ranges: of the requests for the blob."""

    takes_ranges = True
    halves = 0
    ranges: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        if not self.path.endswith(DIGEST):
            return self.answer(200, b"{}")
        self.ranges.append(self.headers.get("Range"))
        byte_range = self.ranges[-1] if self.takes_ranges else None
        start = int(byte_range.removeprefix("bytes=").rstrip("-")) if byte_range else 0
        body = BLOB[start:]
        sent = body[: len(body) // 2] if len(self.ranges) <= self.halves else body
        span = f"bytes {start}-{len(BLOB) - 1}/{len(BLOB)}"
        self.answer(206 if byte_range else 200, sent, {"Content-Length": str(len(body)), "Content-Range": span})


@pytest.mark.parametrize(
    ("takes_ranges", "ranges"),
    [(True, [None, "bytes=325000-", "bytes=487500-"]), (False, [None, "bytes=325000-"])],
    ids=["registry-with-ranges", "registry-without-ranges"],
)
def test_dropped_read_resumes(
    takes_ranges: bool, ranges: list[str | None], waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"takes_ranges": takes_ranges, "halves": len(ranges) - 1, "ranges": []}.items():
        monkeypatch.setattr(Halves, name, value)
    with serving(Halves) as url:
        assert content(Client(Transport(url.removeprefix("http://"), no_login, sleep=waits.sleep))) == BLOB
    assert Halves.ranges == ranges
    assert waits == [1] * Halves.halves


def test_upload_survives_a_kill_of_the_registry(registry: Registry, client_of: MakeClient, proxy: FaultProxy) -> None:

    def sent(arrived: int) -> None:
        if arrived == 2 * PART and registry.process is not None and not killed:
            killed.append(arrived)
            registry.kill()

    killed: list[int] = []

    def start_again(_: float) -> None:
        if registry.process is None:
            registry.start()

    client = client_of(proxy, sleep=start_again)
    send(client, sent=sent)
    assert killed == [2 * PART]
    assert content(client) == BLOB


def test_full_disk_is_reported_and_the_next_upload_succeeds(
    make_registry: MakeRegistry, client_of: MakeClient, waits: Waits
) -> None:
    place = make_registry(disk_bytes=8 << 20)
    client = client_of(place)
    client.put_blob("a/b", b"a repository")
    place.fill(2 * PART)
    assert refusal(lambda: send(client)) == (
        f"the disk of {place.host} is full (the push of {DIGEST[:19]} failed): make room there, then run this again."
    )
    assert waits == []
    place.make_room()
    send(client)
    assert content(client) == BLOB
