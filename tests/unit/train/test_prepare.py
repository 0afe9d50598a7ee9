"""The user's program and its packages: found, unpacked, installed, or refused with a sentence."""

import tarfile
from pathlib import Path

import pytest

from berth.contract.errors import JobError
from berth.train import prepare
from berth.train.job import Job


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


def test_windows_line_ends_are_refused_where_bash_reads_them(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name in ("train.sh", "train.py"):
        (tmp_path / "code" / name).write_bytes(b"echo = 1\r\n")
    prepare.prepare(job(tmp_path, "train.py"))
    with pytest.raises(JobError, match=r"^the program train\.sh has Windows line ends \(CRLF\): convert it with sed "):
        prepare.prepare(job(tmp_path, "train.sh"))
