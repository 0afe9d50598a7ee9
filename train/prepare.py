"""Brings the user's program to /opt/ml/code and installs its requirements.txt, before any rank starts.

Nothing here runs for the kit's own program. Every mistake is a JobError with one sentence.
"""

import difflib
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from berth.contract.errors import JobError
from berth.train.job import Job
from berth.train.log import get_logger

_SUFFIXES = (".py", ".sh")
_UNREACHED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|Name or service not known|Temporary failure in name resolution|Connection refused|"
    r"No route to host|Network is unreachable|ConnectTimeoutError|ReadTimeoutError|ProxyError"
)
# pip says so up to five times for each package, in 300 characters.
_RETRYING = re.compile(r"WARNING: Retrying \(Retry\(")
_LINE_CHARACTERS = 200
_VENDOR = "put the wheels next to it and `--no-index --find-links .` into its first line"


def prepare(job: Job) -> None:
    """Fetch, check and install the user's program."""
    if job.program is None:
        return
    check_name(job.program)
    fetch(job)
    check_program(job)
    install_requirements(job.code_dir)


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
    """The program must be there; else its nearest neighbour is named."""
    program = str(job.program)
    if (job.code_dir / program).is_file():
        return
    present = sorted(
        str(path.relative_to(job.code_dir)) for suffix in _SUFFIXES for path in job.code_dir.rglob(f"*{suffix}")
    )
    near = difflib.get_close_matches(program, present, n=1)
    hint = f"did you mean {near[0]}" if near else f"programs there: {', '.join(present[:5]) or 'none'}"
    raise JobError(
        f"the program {program} is not in {job.code_dir} ({hint}); set entry_point to a file inside source_dir."
    )


def install_requirements(code_dir: Path) -> None:
    """pip install -r requirements.txt, in the code folder so that vendored wheels can be named by relative paths."""
    if not (code_dir / "requirements.txt").is_file():
        return
    get_logger().info("program: installing requirements.txt")
    # -P: a user's own module next to requirements.txt must not stand in for one of pip's.
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "-r",
        "requirements.txt",
    ]
    process = subprocess.Popen(
        command,
        cwd=code_dir,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=40)

    def lines(stream: Iterable[str]) -> Iterator[str]:
        for line in stream:
            tail.append(line.rstrip())
            yield line.rstrip()

    for line in readable(lines(process.stdout)):
        get_logger().info("pip: %s", line)
    if process.wait() != 0:
        raise JobError(failed_install(tail))


def readable(output: Iterable[str]) -> Iterator[str]:
    """pip's output for the log: that it tries an index again in a few words and once, and no line without end."""
    seen: set[str] = set()
    for line in output:
        if _RETRYING.match(line):
            match = _UNREACHED.search(line)
            line = f"the package index can't be reached ({match[0] if match else 'no answer'}), trying again"
            if line in seen:
                continue
            seen.add(line)
        yield line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"


def failed_install(output: Sequence[str]) -> str:
    """The sentence for pip's output: its error, or that it reached no index, which pip calls a missing version."""
    if obstacle := next((match[0] for line in output if (match := _UNREACHED.search(line))), None):
        return (
            f"requirements.txt could not be installed, for the package index can't be reached ({obstacle}); give the "
            f"job a network and certificates that reach one, or {_VENDOR}."
        )
    error = next((line for line in output if line.startswith("ERROR:")), output[-1] if output else "no reason given")
    return f"requirements.txt could not be installed ({error.removeprefix('ERROR: ')}); fix it, or {_VENDOR}."
