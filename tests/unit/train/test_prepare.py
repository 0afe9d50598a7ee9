"""The user's program and its packages: found, unpacked, installed, or refused with a sentence."""

import tarfile
from pathlib import Path

import pytest

from berth.contract.errors import JobError
from berth.train import prepare
from berth.train.job import Job
from berth.train.prepare import failed_install, readable


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
            "(CERTIFICATE_VERIFY_FAILED); give the job a network and certificates that reach one, or put the wheels "
            "next to it and `--no-index --find-links .` into its first line.",
            id="no-network",
        ),
        pytest.param(
            ["Collecting no-such", "ERROR: No matching distribution found for no-such"],
            "requirements.txt could not be installed (No matching distribution found for no-such); fix it, or put the "
            "wheels next to it and `--no-index --find-links .` into its first line.",
            id="no-such-package",
        ),
        pytest.param(
            [],
            "requirements.txt could not be installed (no reason given); fix it, or put the wheels next to it and "
            "`--no-index --find-links .` into its first line.",
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


def job(root: Path, program: str, source: str | None = None) -> Job:
    return Job(root, "a", ("a",), None, {}, {}, {}, program=program, submit_directory=source)


BAD_NAMES = ["/etc/train.py", "../train.py", "-c.py", "train.txt", "train"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_program_name_is_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(JobError, match="the program"):
        prepare.prepare(job(tmp_path, name))


def test_missing_program_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    with pytest.raises(JobError, match=r"trian\.py is not in .* \(did you mean train\.py\)"):
        prepare.prepare(job(tmp_path, "trian.py"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_source_archive_is_unpacked(tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    (tmp_path / "train.py").write_text("pass")
    archive = tmp_path / "sourcedir.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "train.py", "train.py")
    prepare.prepare(job(tmp_path / "ml", "train.py", f"{scheme}{archive}"))
    assert (tmp_path / "ml" / "code" / "train.py").read_text() == "pass"


def test_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the program's source /no/such does not exist"):
        prepare.prepare(job(tmp_path, "train.py", "file:///no/such"))
