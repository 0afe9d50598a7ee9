"""Refused requests and wrong answers of registries are one sentence each."""

import json

import pytest

from berth.ecr.registry import transport
from berth.ecr.registry.client import Registry as Client
from tests.registry import made_images
from tests.registry.blobs import BLOB, DIGEST, MISSING, content, send
from tests.registry.conftest import MakeClient, Waits, refusal
from tests.registry.fault_proxy import FaultProxy

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (403, '{"errors":[{"code":"DENIED","message":"no identity-based policy allows it"}]}', "denies the push of"),
        (507, "", "the disk of"),
        (200, "<html>log in here</html>", "refuses the push of sha256:"),
    ],
)
def test_refused_upload_is_not_retried(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, status: int, body: str, sentence: str
) -> None:
    proxy.answer(status, method="PATCH", skip=1, times=99, body=body.encode())
    assert sentence in refusal(lambda: send(client_of(proxy)))
    assert waits == []


def test_error_for_repository_deleted_during_an_upload(proxy: FaultProxy, client_of: MakeClient) -> None:
    body = b'{"errors":[{"code":"NAME_UNKNOWN","message":"The repository does not exist in the registry"}]}'
    proxy.answer(404, method="PUT|POST|PATCH", skip=2, times=99, body=body)
    sentence = refusal(lambda: send(client_of(proxy)))
    assert "has no repository a/b (NAME_UNKNOWN: The repository does not exist in the registry): create it" in sentence
    proxy.forget()
    send(client_of(proxy))
    assert content(client_of(proxy)) == BLOB


def test_error_for_immutable_tag_has_the_reason(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image, other = made_images.image(), made_images.image(seed=9)
    made_images.put(client, "a/b", "1", image)
    made_images.put_blobs(client, "a/b", other)
    message = (
        "The image tag '1' already exists in the 'a/b' repository and cannot be overwritten because the tag is "
        "immutable."
    )
    body = json.dumps({"errors": [{"code": "TAG_INVALID", "message": message}]}).encode()  # ECR's words
    proxy.answer(400, method="PUT", path="manifests/1", times=9, body=body)
    sentence = refusal(lambda: client.put_manifest("a/b", "1", other.manifest))
    assert sentence.startswith(f"{proxy.host}/a/b refuses the tag 1 (TAG_INVALID: The image tag '1' already exists")
    assert sentence.endswith("its tags can't be moved, use another --tag, such as a new version.")
    assert client.put_manifest("a/b", "1", image.manifest) == image.manifest.digest


# Wrong answers.


def test_error_for_manifest_with_other_digest(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image, other = made_images.image(), made_images.image(seed=9)
    made_images.put(client, "a/b", "1", image)
    lie = {"Content-Type": other.manifest.media_type, "Docker-Content-Digest": image.manifest.digest}
    proxy.answer(200, method="GET", path="manifests", times=2, headers=lie, body=other.manifest.raw)
    for reference in ("1", image.manifest.digest):
        sentence = refusal(lambda reference=reference: client.manifest("a/b", reference))  # type: ignore[misc]
        assert f"returned {other.manifest.digest} for {image.manifest.digest}" in sentence


def test_error_if_the_registry_stores_another_digest(proxy: FaultProxy, client_of: MakeClient) -> None:
    image = made_images.image()
    proxy.answer(201, method="PUT", path="manifests", headers={"Docker-Content-Digest": MISSING})
    sentence = refusal(lambda: client_of(proxy).put_manifest("a/b", "1", image.manifest))
    assert f"returned {MISSING} for {image.manifest.digest}" in sentence


@pytest.mark.parametrize(
    ("source", "sentence"),
    [(BLOB[:-1], "ends after 649999 of 650000 bytes"), (BLOB + b"x", "has more than its 650000 bytes")],
)
def test_error_for_source_of_another_size(client: Client, source: bytes, sentence: str) -> None:
    assert sentence in refusal(lambda: client.upload_blob("a/b", DIGEST, len(BLOB), lambda: iter((source,))))
    assert client.blob_size("a/b", DIGEST) is None


def test_error_for_source_with_other_bytes(client: Client, waits: Waits) -> None:
    wrong = BLOB[:-1] + b"x"
    sentence = refusal(lambda: client.upload_blob("a/b", DIGEST, len(BLOB), lambda: iter((wrong,))))
    assert "got bytes at the push of" in sentence
    assert waits == []


def test_error_for_too_large_answer(proxy: FaultProxy, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LARGEST_ANSWER", 1 << 20)
    proxy.answer(200, path="manifests", body=bytes(3 << 20))
    assert "with more than 1 MiB" in refusal(lambda: client_of(proxy).manifest("a/b", "1"))
