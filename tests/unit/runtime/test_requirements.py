"""pip for a user's requirements.txt: what it says, and why it failed."""

import sys
from pathlib import Path

import pytest

from berth.runtime.requirements import RequirementsError, failed_install, install, readable


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        pytest.param(
            [
                "WARNING: Retrying (Retry(total=4)) after connection broken by 'SSLError(SSLCertVerificationError(1, "
                "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/tabulate/",
                "ERROR: Could not find a version that satisfies the requirement tabulate==0.9.0 (from versions: none)",
            ],
            "requirements.txt could not be installed, for the package index https://pypi.org/simple can't be "
            "reached (CERTIFICATE_VERIFY_FAILED); give the container a network and certificates that reach one, or put "
            "the wheels next to it and `--no-index --find-links .` into its first line.",
            id="no-network",
        ),
        pytest.param(
            ["Collecting no-such", "ERROR: No matching distribution found for no-such"],
            "requirements.txt could not be installed (No matching distribution found for no-such; index: "
            "https://pypi.org/simple); fix it, or put the wheels next to it and `--no-index --find-links .` into its "
            "first line.",
            id="no-such-package",
        ),
        pytest.param(
            [],
            "requirements.txt could not be installed (no reason given; index: https://pypi.org/simple); fix it, "
            "or put the wheels next to it and `--no-index --find-links .` into its first line.",
            id="nothing",
        ),
    ],
)
def test_a_failed_install(said: list[str], sentence: str) -> None:
    assert failed_install(said) == sentence


def test_what_pip_says_five_times_is_logged_once_in_a_few_words() -> None:
    retry = (
        "WARNING: Retrying (Retry(total={}, connect=None, read=None, redirect=None)) after connection broken "
        "by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
        "self-signed certificate in certificate chain (_ssl.c:992)'))': /simple/tabulate/"
    )
    said = ["Looking in links: .", *(retry.format(left) for left in (4, 3, 2, 1, 0)), "x" * 300, "ERROR: no"]
    assert list(readable(said)) == [
        "Looking in links: .",
        "the package index can't be reached (CERTIFICATE_VERIFY_FAILED), trying again",
        "x" * 199 + "…",
        "ERROR: no",
    ]


def test_what_can_not_be_had_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("--no-index --find-links .\nno-such-package==1.0\n")
    said: list[str] = []
    with pytest.raises(RequirementsError) as caught:
        install(tmp_path, sys.executable, said.append)
    sentence = str(caught.value)
    assert sentence.startswith(
        "requirements.txt could not be installed (Could not find a version that satisfies the requirement "
        "no-such-package==1.0 (from versions: none); index: "
    )
    assert f"{tmp_path}/.); fix it, or put the wheels next to it" in sentence
    assert any("no-such-package" in line for line in said)
