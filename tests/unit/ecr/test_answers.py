"""What an engine's error during a push asks for."""

import pytest

from berth.ecr.answers import Answer, verdict

HOST = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("error", "answer", "says"),
    [
        ("denied: Your authorization token has expired. Reauthenticate and try again.", Answer.LOGIN, "docker login"),
        ("no basic auth credentials", Answer.LOGIN, "docker login"),
        ("unauthorized: authentication required", Answer.LOGIN, "docker login"),
        ("received unexpected HTTP status: 503 Service Unavailable", Answer.RETRY, "push again later"),
        ("toomanyrequests: Rate exceeded", Answer.RETRY, "push again later"),
        ('Patch "https://x/v2/": write tcp 10.0.0.1: write: broken pipe', Answer.RETRY, "not sent again"),
        ("Get https://x/v2/: dial tcp 127.0.0.1:5000: connect: connection refused", Answer.RETRY, "broke again"),
        ("unexpected EOF", Answer.RETRY, "broke again"),
        ("x509: certificate signed by unknown authority", Answer.STOP, f"/etc/docker/certs.d/{HOST}/ca.crt"),
        ("http: server gave HTTP response to HTTPS client", Answer.STOP, "plain HTTP"),
        (
            "tag invalid: The image tag '0.1.0' already exists in the 'b' repository and cannot be overwritten because "
            "the repository is immutable.",
            Answer.STOP,
            "another --tag",
        ),
        (
            "denied: User: arn:aws:iam::1:user/x is not authorized to perform: ecr:InitiateLayerUpload on resource: y",
            Answer.STOP,
            "the permission ecr:InitiateLayerUpload is missing",
        ),
        ("name unknown: The repository with name 'b' does not exist in the registry", Answer.STOP, "does not exist"),
        ("filesystem: write /x/data: no space left on device", Answer.STOP, "no room left"),
        ("dial tcp: lookup x.example: no such host", Answer.STOP, "check the region"),
        ("something\n never seen", Answer.STOP, "something never seen"),
    ],
)
def test_an_error_is_retried_only_where_that_can_help(error: str, answer: Answer, says: str) -> None:
    found = verdict(error, HOST, "berth-train")
    assert found.answer is answer
    assert says in found.sentence
    assert "\n" not in found.sentence


def test_a_digest_in_a_sentence_is_no_status_of_http() -> None:
    assert verdict("manifest blob unknown: sha256:ab401cd5034290", HOST, "r").answer is Answer.STOP
