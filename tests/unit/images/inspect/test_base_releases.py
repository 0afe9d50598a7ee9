"""Newer releases of the base, with a double of Docker Hub's API."""

import http.server
import json
from collections.abc import Iterator
from typing import ClassVar

import pytest

from berth.images.inspect.base_releases import ask_hub, newer_tag
from berth.images.network.build_network import Network, PackageIndex
from tests.doubles.http_server import serving

BASE = "debian:bookworm-20260918-slim@sha256:00"
HERE = Network(None, PackageIndex(), (), "", "", "")


@pytest.mark.parametrize(
    ("tag", "others", "expected"),
    [
        (
            "bookworm-20260918-slim",
            ["bookworm-20261102-slim", "bookworm-20261005-slim", "trixie-20261102-slim", "bookworm-20261109", "latest"],
            "bookworm-20261102-slim",
        ),
        ("bookworm-20260918-slim", ["bookworm-20260918-slim", "bookworm-20260101-slim"], ""),
        ("bookworm-slim", ["bookworm-20261102-slim"], ""),
        ("a.b-20260918", ["axb-20261102", "a.b-20261001"], "a.b-20261001"),
    ],
)
def test_newer_tag_differs_only_by_day(tag: str, others: list[str], expected: str) -> None:
    assert newer_tag(tag, others) == expected


class HubDouble(http.server.BaseHTTPRequestHandler):
    """A double of Docker Hub's list of tags."""

    status = 200
    body = b""
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(HubDouble, "asked", [])
    with serving(HubDouble) as address:
        yield address


def test_hub_is_asked_for_tags_of_official_image(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [{"name": name} for name in ("bookworm-20261102-slim", "bookworm-20261102")]
    monkeypatch.setattr(HubDouble, "body", json.dumps({"results": names}).encode())
    assert ask_hub(BASE, HERE, hub) == ("bookworm-20261102-slim", "")
    assert HubDouble.asked == ["/v2/repositories/library/debian/tags?name=bookworm-&page_size=100"]


@pytest.mark.parametrize(
    ("base", "status", "body", "message"),
    [
        (BASE, 429, b"", "answers 429 Too Many Requests."),
        (BASE, 200, b"<html>", "does not answer with a list of tags."),
        (BASE, 200, b'{"results": [1]}', "does not answer with a list of tags."),
        ("public.ecr.aws/docker/library/debian:bookworm-20260918-slim", 200, b"", "is not on Docker Hub."),
        ("debian:bookworm-slim", 200, b"", "it has no day in its tag"),
    ],
)
def test_unusable_answer_of_hub_is_reported(
    base: str, status: int, body: bytes, message: str, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HubDouble, "status", status)
    monkeypatch.setattr(HubDouble, "body", body)
    tag, sentence = ask_hub(base, HERE, hub)
    assert tag == ""
    assert sentence.startswith(f"Whether the base {base.partition('@')[0]} has a newer release is not known: ")
    assert message in sentence


def test_unreachable_hub_is_reported() -> None:
    tag, sentence = ask_hub(BASE, HERE, "http://127.0.0.1:9")
    assert tag == ""
    assert "does not answer: Connection refused." in sentence
