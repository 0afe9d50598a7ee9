"""What is said of a requirements.txt that pip could not install."""

import pytest

from berth.train.prepare import failed_install


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        pytest.param(
            [
                "WARNING: Retrying (Retry(total=4)) after connection broken by 'SSLError(SSLCertVerificationError(1, "
                "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/tabulate/",
                "ERROR: Could not find a version that satisfies the requirement tabulate==0.9.0 (from versions: none)",
            ],
            "requirements.txt could not be installed, for the package index can't be reached "
            "(CERTIFICATE_VERIFY_FAILED); give the job a network and certificates that reach one, or vendor the "
            "wheels beside it.",
            id="no-network",
        ),
        pytest.param(
            ["Collecting no-such", "ERROR: No matching distribution found for no-such"],
            "requirements.txt could not be installed (No matching distribution found for no-such); mend it, or vendor "
            "the wheels beside it.",
            id="no-such-package",
        ),
        pytest.param(
            [],
            "requirements.txt could not be installed (no reason given); mend it, or vendor the wheels beside it.",
            id="nothing",
        ),
    ],
)
def test_a_failed_install(said: list[str], sentence: str) -> None:
    assert failed_install(said) == sentence
