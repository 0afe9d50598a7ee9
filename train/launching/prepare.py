"""Fetches the user's program to /opt/ml/code and installs its requirements before any rank starts.

For run_qa, berth's own program, nothing is done. Every user error is a JobError with one sentence.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from berth.contract import variables
from berth.contract.errors import JobError
from berth.contract.nearest import close_match
from berth.runtime import requirements
from berth.runtime.hints.program import PackageNote
from berth.runtime.pip_environment import CHANNEL
from berth.runtime.requirements import RequirementsError, Wanted
from berth.train.failures.explain import CONVERT_LINE_ENDS
from berth.train.hosts.log import get_logger
from berth.train.planning.job import Job

SETUP = "setup.py"
_SUFFIXES = (".py", ".sh")


def prepare(job: Job) -> PackageNote | None:
    """Fetch, check and install the user's program. Returns which of the image's packages its requirements replaced."""
    if job.program is None:
        return None
    check_name(job.program)
    fetch(job)
    check_program(job)
    return install(job, os.environ)


def check_name(program: str) -> None:
    """JobError if the name is not a .py or .sh file, or leads out of the code folder."""
    path = Path(program)
    if path.is_absolute() or ".." in path.parts or program.startswith("-"):
        raise JobError(
            f"the program {program!r} must be a path inside the source folder; set entry_point to one like train.py."
        )
    if path.suffix not in _SUFFIXES:
        raise JobError(
            f"the program {program!r} must end with .py or .sh; rename it and set entry_point to the new name."
        )


def fetch(job: Job) -> None:
    """Unpack `sagemaker_submit_directory` (an s3:// or file:// archive, or a folder) into the code folder.

    Does nothing if the job names no source, or if the code folder already has files.
    """
    uri = (job.submit_directory or "").removeprefix("file://")  # SageMaker's local mode
    if not uri or Path(uri) == job.code_dir:
        return
    if not uri.startswith("s3://") and not Path(uri).exists():
        raise JobError(
            f"the program's source {uri} does not exist in the container; give the estimator a source_dir that "
            "the container can read."
        )
    # Slow to import (boto3), so only if it is needed.
    from sagemaker_training import files

    get_logger().info("program: fetching %s", uri)
    try:
        files.download_and_extract(uri=uri, path=str(job.code_dir))
    except Exception as error:  # boto3, tarfile and the file system raise many types
        raise JobError(
            f"the program's source {uri} could not be fetched or unpacked ({type(error).__name__}: {error}); "
            "check that it is a .tar.gz and that the job's role may read it."
        ) from error


def check_program(job: Job) -> None:
    """JobError if the program is missing (suggests a similar name), or is a shell script with Windows line ends."""
    program = str(job.program)
    if (job.code_dir / program).is_file():
        # Python accepts both kinds of line ends; bash reads the \r as part of a line's last word.
        if program.endswith(".sh") and b"\r\n" in (job.code_dir / program).read_bytes():
            raise JobError(f"the program {program} has Windows line ends (CRLF): {CONVERT_LINE_ENDS}.")
        return
    present = sorted(
        str(path.relative_to(job.code_dir)) for suffix in _SUFFIXES for path in job.code_dir.rglob(f"*{suffix}")
    )
    near = close_match(program, present, 0.6)
    hint = f"did you mean {near}" if near else f"programs found: {', '.join(present[:5]) or 'none'}"
    raise JobError(
        f"the program {program} is not in {job.code_dir} ({hint}); set entry_point to a file inside source_dir."
    )


def is_package(job: Job) -> bool:
    """Whether to install the source folder and run the program as a module: it is a .py file beside a setup.py.

    sagemaker-training does the same.
    """
    return bool(job.program and job.program.endswith(".py")) and (job.code_dir / SETUP).is_file()


def install(job: Job, environ: Mapping[str, str]) -> PackageNote | None:
    """Install the program's requirements, and its source folder if that is a package, into the image's environment.

    Logs and returns which of the image's packages that replaced.
    """
    with TemporaryDirectory() as scratch:
        wanted = [*_package(job, Path(scratch)), *_requirements(job.code_dir, environ)]
        if not wanted:
            return None
        names = " and ".join(item.name for item in wanted)
        get_logger().info("program: installing %s", names)
        request = Wanted(names, tuple(word for item in wanted for word in item.arguments))
        try:
            certificates = job.root / "input" / "data" / CHANNEL
            note = requirements.install(
                job.code_dir, sys.executable, lambda line: get_logger().info("pip: %s", line), request, certificates
            )
        except RequirementsError as error:
            raise JobError(str(error)) from None
    if note:
        get_logger().warning("warning: %s", note.text)
    return note


def _package(job: Job, scratch: Path) -> list[Wanted]:
    """The source folder if it is a package, as a copy in `scratch`.

    Building writes into the folder, and in local mode all hosts share the user's own. Without a pyproject.toml it is
    built with the image's setuptools, which needs no network.
    """
    if not is_package(job):
        return []
    options = () if (job.code_dir / "pyproject.toml").is_file() else ("--no-build-isolation",)
    source = scratch / "source"
    shutil.copytree(job.code_dir, source, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", ".git"))
    return [Wanted(SETUP, (*options, str(source)))]


def _requirements(code_dir: Path, environ: Mapping[str, str]) -> list[Wanted]:
    """The file named by SAGEMAKER_REQUIREMENTS, which must exist, otherwise requirements.txt if it exists."""
    requested = environ.get(variables.REQUIREMENTS, "").strip()
    name = requested or requirements.FILE
    if (code_dir / name).is_file() and (code_dir / name).resolve().is_relative_to(code_dir.resolve()):
        folder = Path(name).parent
        # For wheels in the source folder itself berth.runtime.pip_environment sets this option.
        links = ("--find-links", str(folder)) if folder.parts and any((code_dir / folder).glob("*.whl")) else ()
        return [Wanted(name, (*links, "-r", name))]
    if requested:
        near = close_match(requested, [path.name for path in code_dir.glob("*.txt")], 0.6)
        hint = f"did you mean {near}?" if near else "name a file inside source_dir."
        raise JobError(f"{variables.REQUIREMENTS} names {requested}, which is not in the source folder: {hint}")
    return []
