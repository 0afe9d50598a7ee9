"""Every command reports each error of the Docker SDK as one sentence, without a traceback."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from docker import APIClient
from docker.credentials.errors import StoreError
from docker.errors import DockerException, InvalidVersion
from requests import Request, Response
from requests.exceptions import ChunkedEncodingError, ConnectionError, ReadTimeout
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from berth.common import engine
from berth.common.engine_errors import explain
from tests.doubles.engine_double import EngineDouble, api_error, engine_double
from tests.doubles.programs import shell_program

LOST = ConnectionError(ProtocolError("aborted", ConnectionResetError(104, "Connection reset by peer")))


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        pytest.param(api_error(500, "input/output error"), ("engine failed: input/output error.",), id="failed"),
        pytest.param(api_error(409, "conflict"), ("engine refused a request: conflict.",), id="refused"),
        pytest.param(
            api_error(500, "write /var/lib/docker/tmp/x: no space left on device"),
            ("no space left on device", "python build.py clean"),
            id="full",
        ),
        pytest.param(
            api_error(400, 'invalid mount config for type "bind": bind source path does not exist: /tmp/x'),
            ("/tmp/x", "TMPDIR"),
            id="folder-not-shared",
        ),
        pytest.param(api_error(500, "exec format error"), ("linux/amd64", "doctor"), id="another-platform"),
        pytest.param(LOST, ("connection to the Docker engine broke off",), id="lost"),
        pytest.param(ChunkedEncodingError("cut"), ("broke off",), id="lost-in-a-stream"),
        pytest.param(ProtocolError("cut"), ("broke off",), id="lost-below-requests"),
        pytest.param(ReadTimeout("timed out"), ("does not answer in time",), id="silent"),
        pytest.param(ReadTimeoutError(None, "/", "timed out"), ("does not answer in time",), id="silent-in-a-stream"),
        pytest.param(
            ConnectionError("x", request=Request(url="https://pypi.org/pip/")),
            ("pypi.org",),
            id="not-the-engine",
        ),
        pytest.param(
            ConnectionError("x", request=Request(url="http://10.0.0.2:2375/v1.43/info")),
            ("Docker engine",),
            id="engine-by-tcp",
        ),
        pytest.param(InvalidVersion("API versions below 1.24"), ("API versions below 1.24",), id="old-engine"),
        pytest.param(
            DockerException(
                f"Credentials store error: {StoreError('docker-credential-desktop not installed or not ')!r}"
            ),
            ("docker-credential-desktop", "is not installed", "docker login"),
            id="helper-missing",
        ),
        pytest.param(
            StoreError('Credentials store docker-credential-pass exited with "hunter2".'),
            ("docker-credential-pass", "fails", "`docker-credential-pass list`"),
            id="helper-fails",
        ),
    ],
)
def test_explain_returns_one_sentence_with_remedy(error: Exception, parts: tuple[str, ...]) -> None:
    sentence = explain(error)
    for part in parts:
        assert part in sentence
    assert "hunter2" not in sentence, "a helper's output may contain a password"
    assert sentence.endswith(".")


def test_explain_ignores_errors_from_elsewhere() -> None:
    assert explain(KeyError("x")) == ""
    assert explain(OSError(2, "no such file")) == ""


def test_podman_error_without_message_field_is_explained() -> None:
    """For such an answer of podman's service the SDK raises KeyError: 'message'."""
    response = Response()
    response.status_code, response.url = 500, "http+docker://localhost/v1.41/images/a/push"
    response._content = b'{"error":"no such registry"}'
    with pytest.raises(KeyError) as raised:
        APIClient(version="1.41")._raise_for_status(response)
    assert explain(raised.value).startswith("The Docker engine failed: no such registry. Its own log")


def test_explain_omits_passwords_in_urls() -> None:
    assert "hunter2" not in explain(api_error(500, "Get https://me:hunter2@registry.corp/v2/: EOF"))


@pytest.fixture
def failing_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineDouble]:
    with engine_double() as double:
        monkeypatch.setenv("DOCKER_HOST", double.host)
        yield double


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["size", "train"],
        ["bill", "serve"],
        ["diff", "a", "b"],
        ["clean", "--dry-run"],
        ["profile", "list"],
        ["uri", "train"],
        ["run", "serve", "--model", "m"],
        ["demo"],
        ["quantize", "m", "--data", "sample/squad-heldout.json.xz"],
        ["hyperparameters"],
        ["gpu-check", "--profile", "cu130"],
        ["build", "serve"],
    ],
    ids=" ".join,
)
def test_commands_report_a_failing_engine_without_traceback(
    words: list[str],
    failing_engine: EngineDouble,
    command_line: ModuleType,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "m").mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    arguments = [str(tmp_path / "m") if word == "m" else word for word in words]
    assert command_line.main(arguments) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("berth: error: ")
    assert "The Docker engine failed: open /var/lib/docker/repositories.json: input/output error." in last


@pytest.mark.parametrize("helper", ["", "exit 1", "echo no JSON"], ids=["missing", "fails", "no-json"])
def test_error_names_broken_credential_helper(
    helper: str, failing_engine: EngineDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"credsStore": "berth-test"}')
    if helper:
        shell_program(tmp_path / "docker-credential-berth-test", helper)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Exception) as raised:  # noqa: PT011  # of any type: `explain` handles all
        engine.pull("debian:12", 5)
    sentence = explain(raised.value) or str(raised.value)
    assert "credential" in sentence
    assert "POST /images/create" not in failing_engine.requests
