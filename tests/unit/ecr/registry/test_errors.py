"""Error answers of registries as sentences."""

import json

import pytest

from berth.ecr.registry.errors import RegistryAnswer, sentence


def refused(status: int, code: str = "", message: str = "", body: bytes = b"") -> RegistryAnswer:
    errors = {"errors": [{"code": code, "message": message}]}
    return RegistryAnswer(status, {}, body or (json.dumps(errors).encode() if code else b""))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            refused(401, "UNAUTHORIZED", "authentication required"),
            "host does not accept this login for the push (UNAUTHORIZED: authentication required): log in with an "
            "account that may do that.",
        ),
        (
            refused(403, "DENIED", "not authorized to perform: ecr:InitiateLayerUpload"),
            "host/a/b denies the push (DENIED: not authorized to perform: ecr:InitiateLayerUpload): ask its owner for "
            "the permission, or log in as someone else.",
        ),
        (
            refused(404, "NAME_UNKNOWN", "repository name not known to registry"),
            "host has no repository a/b (NAME_UNKNOWN: repository name not known to registry): create it, or fix its "
            "name.",
        ),
        (
            refused(400, "NAME_INVALID", "bad"),
            "host does not accept the repository name a/b (NAME_INVALID: bad): use another one.",
        ),
        (
            refused(429, "TOOMANYREQUESTS", "Rate exceeded."),
            "host gets too many requests (TOOMANYREQUESTS: Rate exceeded): run this again later; complete layers are "
            "not sent again.",
        ),
        (
            refused(404, "BLOB_UPLOAD_INVALID", "blob upload invalid"),
            "host/a/b lost the upload at the push (BLOB_UPLOAD_INVALID: blob upload invalid): run this again; "
            "complete layers are not sent again.",
        ),
        (
            refused(400, "MANIFEST_BLOB_UNKNOWN", "x"),
            "host/a/b lacks a blob for the push (MANIFEST_BLOB_UNKNOWN: x): run this again, which sends what is "
            "missing.",
        ),
        (
            refused(400, "MANIFEST_INVALID", "x"),
            "host/a/b rejects the manifest at the push (MANIFEST_INVALID: x): check which media types it allows.",
        ),
        (
            refused(412, "PRECONDITION", "configured as immutable"),
            "host/a/b refuses the push (PRECONDITION: configured as immutable): its tags can't be moved, use another "
            "--tag, such as a new version.",
        ),
        (
            refused(400, "DIGEST_INVALID", "x"),
            "host/a/b got bytes at the push that do not match their digest (DIGEST_INVALID: x): run this again.",
        ),
        (
            refused(404, body=b"404 page not found"),
            "host/a/b was not found for the push (404 page not found): create the repository, or fix its name.",
        ),
        (refused(413), "something in front of host refuses the push as too large (413): allow larger bodies there."),
        (refused(507), "the disk of host is full (the push failed): make room there, then run this again."),
        (
            refused(502, body=b"<html><h1>Bad gateway</h1></html>"),
            "host failed at the push (502, a web page): run this again later, or look at the registry's log; complete "
            "layers are not sent again.",
        ),
        (
            RegistryAnswer(307, {"Location": "https://user:secret@other/v2/"}),
            "host redirects the push to https://other/v2/: give the host of the registry itself.",
        ),
        (
            refused(418, body=b"a  teapot\nof two lines"),
            "host/a/b refuses the push with 418 (a teapot of two lines): check what the registry supports.",
        ),
    ],
)
def test_sentence_for_each_answer(answer: RegistryAnswer, expected: str) -> None:
    assert sentence("host", "a/b", "the push", answer) == expected


@pytest.mark.parametrize(
    "body",
    [
        # The distribution registry's answers for a blob, and for an upload that it can't begin.
        b'{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":"write /x: no space left on device"}]}',
        b'{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":{"Enclosed":{"Op":"mkdir","Err":28}}}]}',
        b'{"errors":[{"code":"UNKNOWN","detail":{"Err": 122}}]}',
    ],
)
def test_full_disk_is_not_retryable(body: bytes) -> None:
    assert RegistryAnswer(500, {}, body).disk_full
    assert not RegistryAnswer(500, {}, body).retryable
    assert not RegistryAnswer(200, {}, body).disk_full


def test_message_is_shortened() -> None:
    assert len(RegistryAnswer(500, {}, b"x" * 100_000).message) == 240
    assert RegistryAnswer(500, {"Content-Type": "text/html"}, b"x").message == "500, a web page"
    assert RegistryAnswer(500).message == "500"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"errors": 1}', b'{"errors": [1]}', b"[" * 100_000, b"\xff"])
def test_malformed_body_has_no_codes(body: bytes) -> None:
    assert RegistryAnswer(400, {}, body).codes == []
    assert sentence("host", "", "the push", RegistryAnswer(400, {}, body)).startswith(
        "host refuses the push with 400 ("
    )
