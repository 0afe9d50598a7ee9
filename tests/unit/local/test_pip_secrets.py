"""pip in a job's containers gets this machine's CA, index and wheels, as files that variables point to."""

import os
from pathlib import Path

import pytest

from berth.local.pip_secrets import write_pip_secrets

SECRET = "https://me:s3cret@index.example/simple"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A machine with a CA, an index with a password, and a folder of wheels."""
    (tmp_path / "ca.pem").write_text("a certificate")
    (tmp_path / "wheels").mkdir()
    return {
        "SSL_CERT_FILE": str(tmp_path / "ca.pem"),
        "PIP_INDEX_URL": SECRET,
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
    }


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    return tmp_path / "src"


def test_job_without_requirements_gets_no_secrets(environ: dict[str, str], code: Path, tmp_path: Path) -> None:
    secrets = write_pip_secrets(code, {}, tmp_path, environ)
    assert (secrets.mounts, secrets.environment) == ({}, {})
    assert not (tmp_path / "network").exists()


@pytest.mark.parametrize(
    ("file", "variables"),
    [("requirements.txt", {}), ("setup.py", {}), ("gpu.txt", {"SAGEMAKER_REQUIREMENTS": "gpu.txt"})],
)
def test_job_that_calls_pip_gets_secrets(
    file: str, variables: dict[str, str], environ: dict[str, str], code: Path, tmp_path: Path
) -> None:
    (code / file).touch()
    secrets = write_pip_secrets(code, variables, tmp_path, environ)
    assert secrets.environment == {"PIP_CONFIG_FILE": "/run/secrets/pip", "PIP_CERT": "/run/secrets/ca"}


def test_pip_gets_ca_index_proxy_and_wheels(
    environ: dict[str, str], code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "")
    (code / "requirements.txt").write_text("tabulate\n")
    secrets = write_pip_secrets(code, {}, tmp_path, environ)
    network = tmp_path / "network"
    assert secrets.mounts == {
        "/run/secrets/pip": network / "pip",
        "/run/secrets/ca": network / "ca",
        "/run/wheels-0": tmp_path / "wheels",
    }
    assert secrets.environment == {"PIP_CONFIG_FILE": "/run/secrets/pip", "PIP_CERT": "/run/secrets/ca"}
    assert (network / "pip").read_text() == (
        f"[global]\nno-input = true\nindex-url = {SECRET}\nfind-links = /run/wheels-0\nproxy = http://proxy.example:3128\n"
    )
    assert (network / "ca").read_text() == "a certificate"
    assert {path.stat().st_mode & 0o777 for path in network.iterdir()} == {0o600}
    assert network.stat().st_mode & 0o777 == 0o700
