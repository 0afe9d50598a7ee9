"""Brings the user's program to /opt/ml/code and installs what it asks for, before any rank starts.

Nothing here runs for the kit's own program. Every mistake is a JobError with one sentence.
"""

import difflib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from berth.contract import variables
from berth.contract.errors import JobError
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
    """Fetch, check and install the user's program. Returns what its requirements replaced in the image."""
    if job.program is None:
        return None
    check_name(job.program)
    fetch(job)
    check_program(job)
    return install(job, os.environ)


def check_name(program: str) -> None:
    """Refuse a name that no launcher here understands or that leaves the code folder."""
    path = Path(program)
    if path.is_absolute() or ".." in path.parts or program.startswith("-"):
        raise JobError(
            f"the program {program!r} must be a path inside the source folder; set entry_point to one like train.py."
        )
    if path.suffix not in _SUFFIXES:
        raise JobError(
            f"the program {program!r} must end with .py or .sh; rename it and set entry_point to the new name."
        )


def local_uri(uri: str) -> str:
    """A path for file:// (local mode), the address as it is otherwise."""
    return uri.removeprefix("file://") if uri.startswith("file://") else uri


def fetch(job: Job) -> None:
    """Unpack `sagemaker_submit_directory` (s3:// or file:// archive, or a folder) into the code folder, unless
    something is there already.
    """
    uri = local_uri(job.submit_directory or "")
    if not uri or Path(uri) == job.code_dir:
        return
    if not uri.startswith("s3://") and not Path(uri).exists():
        raise JobError(
            f"the program's source {uri} does not exist in the container; give the estimator a source_dir that can be "
            "reached."
        )
    # Slow to import (boto3), so only where it is needed.
    from sagemaker_training import files

    get_logger().info("program: fetching %s", uri)
    try:
        files.download_and_extract(uri=uri, path=str(job.code_dir))
    except Exception as error:  # boto3, tarfile and the file system each have errors of their own
        raise JobError(
            f"the program's source {uri} could not be fetched or unpacked ({type(error).__name__}: {error}); "
            "check that it is a .tar.gz and that the job's role may read it."
        ) from error


def check_program(job: Job) -> None:
    """The program must be there, else its nearest neighbour is named; and bash must be able to read it."""
    program = str(job.program)
    if (job.code_dir / program).is_file():
        # Python takes either kind of line ends; bash takes the \r for a part of the last word.
        if program.endswith(".sh") and b"\r\n" in (job.code_dir / program).read_bytes():
            raise JobError(f"the program {program} has Windows line ends (CRLF): {CONVERT_LINE_ENDS}.")
        return
    present = sorted(
        str(path.relative_to(job.code_dir)) for suffix in _SUFFIXES for path in job.code_dir.rglob(f"*{suffix}")
    )
    near = difflib.get_close_matches(program, present, n=1)
    hint = f"did you mean {near[0]}" if near else f"programs there: {', '.join(present[:5]) or 'none'}"
    raise JobError(
        f"the program {program} is not in {job.code_dir} ({hint}); set entry_point to a file inside source_dir."
    )


def is_package(job: Job) -> bool:
    """Whether the source folder is installed, and the program run as a module, as sagemaker-training does where a
    setup.py lies in it and the program is Python's.
    """
    return bool(job.program and job.program.endswith(".py")) and (job.code_dir / SETUP).is_file()


def install(job: Job, environ: Mapping[str, str]) -> PackageNote | None:
    """Install what the program asks for into the image's environment: its requirements, or its own source folder.

    What that replaces in the image is logged and returned.
    """
    with TemporaryDirectory() as scratch:
        wanted = [*_package(job, Path(scratch)), *_requirements(job.code_dir, environ)]
        if not wanted:
            return None
        names = " and ".join(item.name for item in wanted)
        get_logger().info("program: installing %s", names)
        what = Wanted(names, tuple(word for item in wanted for word in item.arguments))
        try:
            certificates = job.root / "input" / "data" / CHANNEL
            note = requirements.install(
                job.code_dir, sys.executable, lambda line: get_logger().info("pip: %s", line), what, certificates
            )
        except RequirementsError as error:
            raise JobError(str(error)) from None
    if note:
        get_logger().warning("warning: %s", note.text)
    return note


def _package(job: Job, scratch: Path) -> list[Wanted]:
    """The source folder, as a copy in `scratch`: a build leaves files, and in local mode all hosts have the user's own
    folder. A setup.py alone is built with the image's own setuptools, for which no network is needed.
    """
    if not is_package(job):
        return []
    own = () if (job.code_dir / "pyproject.toml").is_file() else ("--no-build-isolation",)
    source = scratch / "source"
    shutil.copytree(job.code_dir, source, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", ".git"))
    return [Wanted(SETUP, (*own, str(source)))]


def _requirements(code_dir: Path, environ: Mapping[str, str]) -> list[Wanted]:
    """requirements.txt if it is there, or the file that SAGEMAKER_REQUIREMENTS names, which must be."""
    given = environ.get(variables.REQUIREMENTS, "").strip()
    name = given or requirements.FILE
    if (code_dir / name).is_file() and (code_dir / name).resolve().is_relative_to(code_dir.resolve()):
        beside = Path(name).parent
        # pip is told of wheels in the source folder itself (berth.runtime.pip_environment).
        links = ("--find-links", str(beside)) if beside.parts and any((code_dir / beside).glob("*.whl")) else ()
        return [Wanted(name, (*links, "-r", name))]
    if given:
        near = difflib.get_close_matches(given, [path.name for path in code_dir.glob("*.txt")], n=1)
        hint = f"did you mean {near[0]}?" if near else "name a file inside source_dir."
        raise JobError(f"{variables.REQUIREMENTS} names {given}, which is not in the source folder: {hint}")
    return []
