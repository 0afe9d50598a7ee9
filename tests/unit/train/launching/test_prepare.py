"""Fetching and checking the user's program, and installing its packages."""

import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from berth.contract.errors import JobError
from berth.runtime.requirements import Wanted
from berth.train.launching import prepare
from berth.train.planning.job import Job


def job(root: Path, program: str, source: str | None = None) -> Job:
    return Job(root, "a", ("a",), None, {}, {}, {}, program=program, submit_directory=source)


BAD_NAMES = ["/etc/train.py", "../train.py", "-c.py", "train.txt", "train"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_invalid_program_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(JobError, match="the program"):
        prepare.prepare(job(tmp_path, name))


def test_missing_program_suggests_similar_name(tmp_path: Path) -> None:
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


def test_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the program's source /no/such does not exist"):
        prepare.prepare(job(tmp_path, "train.py", "file:///no/such"))


def test_shell_script_with_windows_line_ends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name in ("train.sh", "train.py"):
        (tmp_path / "code" / name).write_bytes(b"echo = 1\r\n")
    prepare.prepare(job(tmp_path, "train.py"))
    with pytest.raises(JobError, match=r"^the program train\.sh has Windows line ends \(CRLF\): convert it with sed "):
        prepare.prepare(job(tmp_path, "train.sh"))


INSTALLED = {
    "nothing": (["train.py"], "train.py", "", None),
    "requirements.txt": (["requirements.txt"], "train.py", "", Wanted("requirements.txt", ("-r", "requirements.txt"))),
    "other file name": (["gpu.txt"], "train.sh", "gpu.txt", Wanted("gpu.txt", ("-r", "gpu.txt"))),
    "named file instead of requirements.txt": (
        ["gpu.txt", "requirements.txt"],
        "train.py",
        "gpu.txt",
        Wanted("gpu.txt", ("-r", "gpu.txt")),
    ),
    "file beside wheels": (
        ["gpu/all.txt", "gpu/a-1.0-py3-none-any.whl"],
        "train.py",
        "gpu/all.txt",
        Wanted("gpu/all.txt", ("--find-links", "gpu", "-r", "gpu/all.txt")),
    ),
    "package": (["setup.py"], "train.py", "", Wanted("setup.py", ("--no-build-isolation", "COPY"))),
    "package with pyproject.toml": (
        ["setup.py", "pyproject.toml"],
        "train.py",
        "",
        Wanted("setup.py", ("COPY",)),
    ),
    "package and requirements.txt": (
        ["setup.py", "requirements.txt"],
        "train.py",
        "",
        Wanted("setup.py and requirements.txt", ("--no-build-isolation", "COPY", "-r", "requirements.txt")),
    ),
    "shell script beside setup.py": (["setup.py"], "train.sh", "", None),
}


@pytest.mark.parametrize(("files", "program", "variable", "wanted"), INSTALLED.values(), ids=INSTALLED.keys())
def test_install(
    files: Sequence[str],
    program: str,
    variable: str,
    wanted: Wanted | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training_job = job(tmp_path, program)
    training_job.code_dir.mkdir()
    for name in files:
        (training_job.code_dir / name).parent.mkdir(exist_ok=True)
        (training_job.code_dir / name).touch()
    installed: list[Wanted] = []

    def install(folder: Path, python: str, say: object, request: Wanted, certificates: Path) -> None:
        copies = [word for word in request.arguments if word.startswith("/")]
        assert all(sorted(path.name for path in Path(copy).iterdir()) == sorted(files) for copy in copies)
        installed.append(Wanted(request.name, tuple("COPY" if word in copies else word for word in request.arguments)))

    monkeypatch.setattr("berth.runtime.requirements.install", install)
    prepare.install(training_job, {"SAGEMAKER_REQUIREMENTS": variable})
    assert installed == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("gpus.txt", "did you mean gpu.txt?"),
        ("/etc/hosts", "name a file inside source_dir."),
        ("../a", "name a file inside"),
    ],
)
def test_missing_requirements_file_is_refused(variable: str, hint: str, tmp_path: Path) -> None:
    training_job = job(tmp_path, "train.py")
    training_job.code_dir.mkdir()
    (training_job.code_dir / "gpu.txt").touch()
    (tmp_path / "a").touch()
    with pytest.raises(JobError, match=f"SAGEMAKER_REQUIREMENTS names {variable}, which is not in .*: {hint}"):
        prepare.install(training_job, {"SAGEMAKER_REQUIREMENTS": variable})
