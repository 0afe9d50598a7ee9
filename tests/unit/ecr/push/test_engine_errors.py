"""The remedy for an engine's error during a push."""

import pytest

from berth.ecr.push.engine_errors import Remedy, diagnose, reason

HOST = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("error", "remedy", "part"),
    [
        ("denied: Your authorization token has expired. Reauthenticate and try again.", Remedy.LOGIN, "docker login"),
        ("no basic auth credentials", Remedy.LOGIN, "docker login"),
        ("unauthorized: authentication required", Remedy.LOGIN, "docker login"),
        ("received unexpected HTTP status: 503 Service Unavailable", Remedy.RETRY, "push again later"),
        ("toomanyrequests: Rate exceeded", Remedy.RETRY, "gets too many requests"),
        ("toomanyrequests: Rate limit exceeded", Remedy.RETRY, "gets too many requests"),
        ("received unexpected HTTP status: 429 Quota exceeded", Remedy.RETRY, "gets too many requests"),
        ("denied: storage quota exceeded", Remedy.STOP, "Service Quotas"),
        ('Patch "https://x/v2/": write tcp 10.0.0.1: write: broken pipe', Remedy.RETRY, "not sent again"),
        ("Get https://x/v2/: dial tcp 127.0.0.1:5000: connect: connection refused", Remedy.RETRY, "broke again"),
        ("unexpected EOF", Remedy.RETRY, "broke again"),
        ("x509: certificate signed by unknown authority", Remedy.STOP, f"/etc/docker/certs.d/{HOST}/ca.crt"),
        ("http: server gave HTTP response to HTTPS client", Remedy.STOP, "plain HTTP"),
        (
            "tag invalid: The image tag '0.1.0' already exists in the 'b' repository and cannot be overwritten because "
            "the repository is immutable.",
            Remedy.STOP,
            "another --tag",
        ),
        (
            "denied: User: arn:aws:iam::1:user/x is not authorized to perform: ecr:InitiateLayerUpload on resource: y",
            Remedy.STOP,
            "the permission ecr:InitiateLayerUpload is missing",
        ),
        ("name unknown: The repository with name 'b' does not exist in the registry", Remedy.STOP, "does not exist"),
        ("filesystem: write /x/data: no space left on device", Remedy.STOP, "is full"),
        ("dial tcp: lookup x.example: no such host", Remedy.STOP, "check the region"),
        ("something\n never seen", Remedy.STOP, "something never seen"),
    ],
)
def test_error_is_retried_only_if_that_can_help(error: str, remedy: Remedy, part: str) -> None:
    diagnosis = diagnose(error, HOST, "berth-train")
    assert diagnosis.remedy is remedy
    assert part in diagnosis.sentence
    assert "\n" not in diagnosis.sentence


def test_digits_in_a_digest_are_not_an_http_status() -> None:
    assert diagnose("manifest blob unknown: sha256:ab401cd5034290", HOST, "r").remedy is Remedy.STOP


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (
            'Patch "https://x:5000/v2/b/blobs/uploads/1?_s=a": write tcp 10.0.0.1:4->10.0.0.2:5: write: broken pipe',
            "broken pipe",
        ),
        ("Get https://x/v2/: dial tcp 127.0.0.1:5000: connect: connection refused", "connection refused"),
        ('Put "http://x/v2/": read tcp 10.0.0.1:4: read: connection reset by peer\n', "connection reset by peer"),
        ("dial tcp: lookup x.example: no such host", "lookup x.example: no such host"),
        ("received unexpected HTTP status: 503 Service Unavailable", None),
        ("denied: the tag is immutable", None),
        (
            "error parsing HTTP 429 response body: invalid character '<' looking for beginning of value: \"<html>\"",
            "status 429",
        ),
    ],
)
def test_reason_removes_request_and_addresses(error: str, short: str | None) -> None:
    assert reason(error) == (short or error)
