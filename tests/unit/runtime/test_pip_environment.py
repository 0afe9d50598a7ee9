"""Settings for pip on a closed network: certificates, wheels next to requirements.txt, the cache of a warm pool."""

from pathlib import Path

import pytest

from berth.runtime.pip_environment import pip_environment, trust
from tests.files import write_files

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
NO_CACHE = {"PIP_NO_CACHE_DIR": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source folder with a certificate, next to a channel with one, a system's bundle and a warm pool's folder."""
    files = {
        "code/own.pem": PEM,
        "code/certs/a.crt": PEM,
        "channel/sub/company.CRT": PEM,
        "channel/ca.pem": PEM,
        "channel/key.pem": "-----BEGIN PRIVATE KEY-----\n",
        "channel/binary.crt": "\0\1",
        "channel/readme.txt": PEM,
        "empty/rows.json": "[]",
        "system.crt": PEM,
        "pool/kept": "",
    }
    return write_files(tmp_path, files) / "code"


@pytest.mark.parametrize(
    ("environ", "channel", "certificates"),
    [
        pytest.param({}, None, [], id="endpoint"),
        pytest.param({}, "none", [], id="no-channel"),
        pytest.param({}, "empty", [], id="channel-without-certificates"),
        pytest.param({}, "channel", ["system.crt", "channel/ca.pem", "channel/sub/company.CRT"], id="channel"),
        pytest.param({"PIP_CERT": "/abs.pem"}, None, ["/abs.pem"], id="path"),
        pytest.param({"PIP_CERT": "own.pem"}, None, ["code/own.pem"], id="in-the-source-folder"),
        pytest.param({"PIP_CERT": "certs"}, None, ["code/certs"], id="folder"),
        pytest.param(
            {"PIP_CERT": "certs"},
            "channel",
            ["code/certs/a.crt", "channel/ca.pem", "channel/sub/company.CRT"],
            id="folder-and-channel",
        ),
        pytest.param(
            {"REQUESTS_CA_BUNDLE": "/r.pem", "PIP_CERT": "own.pem"},
            None,
            ["code/own.pem"],
            id="pip-cert-takes-precedence",
        ),
        pytest.param(
            {"REQUESTS_CA_BUNDLE": "/r.pem", "CURL_CA_BUNDLE": "/c.pem"}, None, ["/r.pem"], id="requests-bundle"
        ),
        pytest.param(
            {"CURL_CA_BUNDLE": "/c.pem"},
            "channel",
            ["/c.pem", "channel/ca.pem", "channel/sub/company.CRT"],
            id="curl-bundle-and-channel",
        ),
    ],
)
def test_trusted_certificates(
    environ: dict[str, str], channel: str | None, certificates: list[str], folder: Path
) -> None:
    place = folder.parent
    environment = {"SSL_CERT_FILE": str(place / "system.crt"), **environ}
    found = pip_environment(folder, environment, place / channel if channel else None)
    assert found.certificates == tuple(place / path for path in certificates)


def test_wheels_beside_requirements_are_find_links(folder: Path) -> None:
    assert pip_environment(folder, {}).arguments == ()
    (folder / "a-1.0-py3-none-any.whl").touch()
    assert pip_environment(folder, {}).arguments == ("--find-links", str(folder))


def test_pip_cache_is_in_warm_pool_folder(folder: Path) -> None:
    pool = str(folder.parent / "pool")
    variable = "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"
    assert pip_environment(folder, {}).variables == NO_CACHE
    assert pip_environment(folder, {variable: pool}).variables == {"PIP_CACHE_DIR": f"{pool}/pip"}
    assert pip_environment(folder, {variable: f"{pool}/no-such"}).variables == NO_CACHE
    for own in ({"PIP_CACHE_DIR": "/mine"}, {"PIP_NO_CACHE_DIR": "0"}):
        assert pip_environment(folder, {variable: pool, **own}).variables == {}


def test_trust_sets_variables_of_pip_and_requests() -> None:
    assert trust(Path("/a.pem")) == {"PIP_CERT": "/a.pem", "REQUESTS_CA_BUNDLE": "/a.pem"}
