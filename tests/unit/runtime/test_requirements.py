"""pip installs a user's requirements.txt: its output in the log, the reason of a failure, a real index over https."""

import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.runtime.requirements import RequirementsError, failed_install, install, readable
from berth.serve.user_code.environment import make_environment
from tests.doubles.package_index import PackageIndex, package_index, wheel
from tests.files import write_files


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        pytest.param(
            [
                "WARNING: Retrying (Retry(total=4)) after connection broken by 'SSLError(SSLCertVerificationError(1, "
                "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/tabulate/",
                "ERROR: Could not find a version that satisfies the requirement tabulate==0.9.0 (from versions: none)",
            ],
            "requirements.txt could not be installed, because the package index https://pypi.org/simple can't be "
            "reached for tabulate==0.9.0 (CERTIFICATE_VERIFY_FAILED; trusted certificates: the system's); set "
            "PIP_INDEX_URL to an index that the container can reach, and PIP_CERT to its certificate (a job may have "
            "it in a channel called certificates), or put the wheels next to it and `--no-index` into its first line.",
            id="no-network",
        ),
        pytest.param(
            ["Collecting no-such", "ERROR: No matching distribution found for no-such"],
            "requirements.txt could not be installed (No matching distribution found for no-such; index: "
            "https://pypi.org/simple); fix it, or put the wheels next to it and `--no-index` into its "
            "first line.",
            id="no-such-package",
        ),
        pytest.param(
            [
                "      ValueError: my own reason",
                "      [end of output]",
                "  note: This error originates from a subprocess, and is likely not a problem with pip.",
                "error: metadata-generation-failed",
                "╰─> from file:///tmp/source",
            ],
            "requirements.txt could not be installed (a build ended with: ValueError: my own reason); fix that "
            "package.",
            id="failed-build-of-source-folder",
        ),
        pytest.param(
            [
                "Collecting scikit-learn==0.24.2 (from -r requirements.txt (line 1))",
                "      ModuleNotFoundError: No module named 'pkg_resources'",
                "      [end of output]",
            ],
            "requirements.txt could not be installed: scikit-learn==0.24.2 has no wheel for this image, and its build "
            "ended with ModuleNotFoundError: No module named 'pkg_resources'; take a version that has a wheel, or put "
            "a wheel of it next to requirements.txt.",
            id="failed-build-of-package",
        ),
        pytest.param(
            [
                "ERROR: Ignored the following yanked versions: 2.4.0",
                "ERROR: Ignored the following versions that require a different python version: 1.21.5 Requires-Python "
                ">=3.7,<3.11; 1.21.6 Requires-Python >=3.7,<3.11",
                "ERROR: Could not find a version that satisfies the requirement numpy==1.21.6 (from versions: 2.0.0)",
                "ERROR: No matching distribution found for numpy==1.21.6",
            ],
            "requirements.txt could not be installed: numpy==1.21.6 is not for Python "
            f"{platform.python_version()} of this image; take another version of it, or leave the version out.",
            id="version-for-other-python",
        ),
        pytest.param(
            ["ERROR: Ignored the following yanked versions: 2.4.0", "ERROR: No matching distribution found for a"],
            "requirements.txt could not be installed (No matching distribution found for a; index: "
            "https://pypi.org/simple); fix it, or put the wheels next to it and `--no-index` into its first line.",
            id="yanked-version",
        ),
        pytest.param(
            [],
            "requirements.txt could not be installed (no reason given; index: https://pypi.org/simple); fix it, "
            "or put the wheels next to it and `--no-index` into its first line.",
            id="no-output",
        ),
    ],
)
def test_failed_install_sentence(output: list[str], sentence: str) -> None:
    assert failed_install(output) == sentence


def test_retries_of_pip_are_logged_once() -> None:
    retry = (
        "WARNING: Retrying (Retry(total={}, connect=None, read=None, redirect=None)) after connection broken "
        "by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
        "self-signed certificate in certificate chain (_ssl.c:992)'))': /simple/tabulate/"
    )
    output = ["Looking in links: .", *(retry.format(left) for left in (4, 3, 2, 1, 0)), "x" * 300, "ERROR: no"]
    assert list(readable(output)) == [
        "Looking in links: .",
        "the package index can't be reached (CERTIFICATE_VERIFY_FAILED), trying again",
        "x" * 199 + "…",
        "ERROR: no",
    ]


def test_error_names_searched_places(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("--no-index --find-links .\nno-such-package==1.0\n")
    lines: list[str] = []
    with pytest.raises(RequirementsError) as caught:
        install(tmp_path, sys.executable, lines.append)
    sentence = str(caught.value)
    assert sentence.startswith(
        "requirements.txt could not be installed (Could not find a version that satisfies the requirement "
        "no-such-package==1.0 (from versions: none); wheels in "
    )
    assert (
        f"{tmp_path}/., and the public index unless it is turned off); fix it, or put the wheels next to it" in sentence
    )
    assert any("no-such-package" in line for line in lines)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """A package index with `far_away`. PIP_INDEX_URL names it; no other setting of pip is present."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    place = tmp_path / "company"
    place.mkdir()
    with package_index(place, {"far_away": "WORD = 'hello'\n"}) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an empty environment that also finds this environment's packages, such as pip."""
    make_environment(tmp_path / "environment")
    return tmp_path / "environment/bin/python"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_files(tmp_path / "code", {"requirements.txt": "far-away==1.0\n"})


def installed(python: Path) -> set[str]:
    return {path.stem for path in python.parents[1].glob("lib/python3*/site-packages/*.py")}


@pytest.mark.slow
def test_install_returns_note_of_replaced_and_conflicting_packages(python: Path, code: Path) -> None:
    """The note is read from the output of the installed pip, whose lines a newer version may change."""
    (code / "requirements.txt").write_text("--no-index --find-links .\nh11==0.1\n")
    (code / "h11-0.1-py3-none-any.whl").write_bytes(wheel("h11", "", "0.1"))
    note = install(code, str(python), print)
    assert note is not None
    assert re.match(
        r"requirements.txt replaces h11 0\.\d+\.\d+ with 0\.1; h11 0\.1 \(requirements.txt, line 2\) ", note.text
    )
    assert re.search(r" conflicts with .*httpcore [\d.]+ \(needs >=0\.\d+\)", note.text)
    assert {"h11", "httpcore"} <= {*note.modules}


@pytest.mark.slow
def test_channel_certificate_and_warm_pool_cache(
    index: PackageIndex, python: Path, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel next to requirements.txt needs no option. The next job takes the downloaded wheel from the cache."""
    (code / "requirements.txt").write_text("far-away==1.0\nbeside==1.0\n")
    (code / "beside-1.0-py3-none-any.whl").write_bytes(wheel("beside", ""))
    pool = tmp_path / "pool"
    pool.mkdir()
    monkeypatch.setenv("SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY", str(pool))
    lines: list[str] = []
    install(code, str(python), lines.append, certificates=index.ca.parent)
    assert {"far_away", "beside"} <= installed(python), lines
    assert "pa55word" not in "".join(lines)
    wheel_path = "/simple/far-away/far_away-1.0-py3-none-any.whl"
    assert wheel_path in index.requests
    index.requests.clear()
    make_environment(python.parents[1])
    install(code, str(python), lines.append, certificates=index.ca.parent)
    assert "far_away" in installed(python)
    assert "/simple/far-away/" in index.requests
    assert wheel_path not in index.requests


@pytest.mark.slow
def test_pip_cert_may_be_in_source_folder(
    index: PackageIndex, python: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PIP_CERT takes precedence over REQUESTS_CA_BUNDLE, which the library requests in pip reads first."""
    (code / "own.pem").write_bytes(index.ca.read_bytes())
    monkeypatch.setenv("PIP_CERT", "own.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    install(code, str(python), print)
    assert "far_away" in installed(python)


@pytest.mark.slow
def test_error_names_index_and_certificate(
    index: PackageIndex, python: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequirementsError) as caught:
        install(code, str(python), print)
    assert str(caught.value).startswith(
        f"requirements.txt could not be installed, because the package index {index.shown} can't be reached for "
        "far-away==1.0 (CERTIFICATE_VERIFY_FAILED; trusted certificates: the system's); set PIP_INDEX_URL"
    )
    (code / "other.pem").write_bytes((index.ca.parent / "server.key").read_bytes())
    monkeypatch.setenv("PIP_CERT", "other.pem")
    with pytest.raises(RequirementsError, match=f"for far-away==1.0 .*; trusted certificates: {code}/other.pem"):
        install(code, str(python), print)
    monkeypatch.setenv("PIP_CERT", str(index.ca))
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("pa55word", "wrong"))
    with pytest.raises(RequirementsError, match=r"can't be reached for far-away==1.0 \(401 Error;") as caught:
        install(code, str(python), print)
    assert "wrong" not in str(caught.value)


def test_missing_certificate_is_reported_before_pip_runs(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CERT", "no-such.pem")
    with pytest.raises(RequirementsError) as caught:
        install(code, "no-such-python", print)
    assert str(caught.value) == (
        f"requirements.txt could not be installed, because the certificate {code}/no-such.pem of PIP_CERT or "
        "REQUESTS_CA_BUNDLE does not exist; give its path in the container, or one inside the source folder."
    )
