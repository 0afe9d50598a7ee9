"""Builds the mpirun command line for Open MPI 4 and reads mpirun's output. Pure, except for finding mpirun.

Ranks get their environment and write their output through their host's run folder (berth.train.launching.rank), not
through mpirun: `-x` would give every host the leader's SM_* values, and `--tag-output` cuts lines in the middle.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from berth.contract.errors import JobError
from berth.train.failures.sentence import one_line
from berth.train.planning.mpirun_settings import (
    BIND_TO,
    SSH_ARGUMENTS,
    UserSetting,
    file_settings,
    without_ssh_arguments,
)
from berth.train.startup.sdk3_driver import without_hooks

_MAJOR = 4
"""The Open MPI version that the plan's options are for."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Python, mpirun and what it needs on this host.

    mpirun: its path, empty if missing. major: Open MPI's version, 0 if mpirun is missing or does not report one.
    ssh_config: path of ssh's settings, empty if the job needs no ssh. parameters: from Open MPI's files in the image.
    """

    python: str
    mpirun: str
    major: int
    run_dir: str
    ssh_config: str
    parameters: Mapping[str, UserSetting] = field(default_factory=dict)


def find_mpirun() -> tuple[str, int]:
    """Path of mpirun and the major version that it reports: ('', 0) if it is missing, 0 if its output has no version.

    Skips the hook for SDK v3. Removes OPAL_PREFIX from this process' environment if it belongs to another Open MPI.
    """
    path = shutil.which("mpirun", path=without_hooks(os.environ.get("PATH", "")))
    if path is None:
        return "", 0
    if has_foreign_prefix(path, os.environ):
        del os.environ["OPAL_PREFIX"]
    done = subprocess.run([path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return path, major_version(done.stdout)


def image_parameters(mpirun: str, home: Path) -> dict[str, UserSetting]:
    """The parameters that the image's files set for this mpirun; those in `home` override the others."""
    prefix = Path(mpirun).parent.parent
    installed = Path("/etc/openmpi") if prefix == Path("/usr") else prefix / "etc"
    files = (installed / "openmpi-mca-params.conf", home / ".openmpi" / "mca-params.conf")
    return {name: setting for file in files for name, setting in file_settings(file).items()}


def major_version(text: str) -> int:
    """4 from `mpirun (Open MPI) 4.1.8`; 0 if the text is not Open MPI's."""
    match = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.\d+", text)
    return int(match[1]) if match else 0


def has_foreign_prefix(mpirun: str, environ: Mapping[str, str]) -> bool:
    """Whether OPAL_PREFIX, where an Open MPI that was moved finds its parts, is set and does not contain this mpirun.

    The image sets it for its own Open MPI. Debian's, or one in /opt/amazon, was not moved and would fail with it.
    """
    prefix = environ.get("OPAL_PREFIX", "")
    return bool(prefix) and not Path(mpirun).is_relative_to(prefix)


# The framed messages with which mpirun reports that a rank failed. The rank's own report has the reason.
_NOTICE = re.compile(
    r"Primary job +terminated normally|one or more processes exited with non-zero status|noticed that process rank|"
    r"MPI_ABORT was invoked on rank"  # by mpi4py's runner, after the program raised
)


def _is_edge(line: str) -> bool:
    return len(line) > 20 and set(line.strip()) == {"-"}


def without_notices(lines: Iterable[str]) -> Iterator[str]:
    """mpirun's output without blank lines and without the framed messages that match _NOTICE."""
    frame: list[str] = []
    for line in lines:
        edge = _is_edge(line)
        if frame or edge:
            frame.append(line)
            if edge and len(frame) > 1:
                if not any(_NOTICE.search(text) for text in frame):
                    yield from filter(str.strip, frame)
                frame = []
        elif line.strip():
            yield line
    yield from filter(str.strip, frame)


# What mpirun prints when it aborts the job, from its help texts (4.1.8). Those with "may" and "likely" are warnings.
_ABORT = re.compile(
    r"now going to abort|will now (?:be )?abort|will abort now|will therefore abort|we are aborting|^Aborting\b"
)
_UNREACHABLE = "unable to reach each other"
_ABORT_CHARACTERS = 700


def says_abort(line: str) -> bool:
    """Whether mpirun announces in this line that it aborts the job. It does not always do so."""
    return _ABORT.search(line) is not None


def abort_sentence(lines: Sequence[str]) -> str:
    """Why mpirun aborts the job: its text after the last line of dashes, up to the line that `says_abort`."""
    begin = max((number + 1 for number, line in enumerate(lines) if _is_edge(line)), default=0)
    text = one_line(" ".join(lines[begin:]), _ABORT_CHARACTERS)
    advice = (
        "; correct the network settings, such as btl or btl_tcp_if_exclude, in the custom MPI options and the "
        "variables OMPI_MCA_*, and let the hosts reach each other on all ports (security group)."
        if _UNREACHABLE in text
        else ""
    )
    return f"mpirun aborts the job: {text}{advice}"


def check_version(launcher: Launcher) -> None:
    """JobError if mpirun is missing or its options are not those of Open MPI 4."""
    if launcher.major == 0:
        raise JobError(
            "mpirun is not on PATH or doesn't run; install Open MPI 4.1 in the image (the kit's image has it)."
        )
    if launcher.major != _MAJOR:
        raise JobError(
            f"mpirun is Open MPI {launcher.major}, whose options differ; put one of version {_MAJOR} first on PATH."
        )


def our_settings(launcher: Launcher, interface: str, *, alone: bool) -> dict[str, str]:
    """The plan's settings for mpirun; mpirun_settings drops those that the user has set. `alone`: one host."""
    parameters = {
        BIND_TO: "none",
        "orte_abort_on_non_zero_status": "1",
        # Containers usually lack the permission to read another process' memory (ptrace), and Open MPI would warn.
        "btl_vader_single_copy_mechanism": "none",
        "oob_tcp_if_include": interface,
        "btl_tcp_if_include": interface,
    }
    if not alone:
        parameters |= {
            "plm_rsh_agent": "ssh",
            SSH_ARGUMENTS: f"-F {launcher.ssh_config}",
            # Only the leader holds the job's key, so it starts every host's daemon itself.
            "plm_rsh_no_tree_spawn": "1",
        }
    return parameters


def mpirun_command(
    launcher: Launcher, hosts: Sequence[str], ranks: int, settings: Mapping[str, str], options: Sequence[str]
) -> tuple[str, ...]:
    """The whole command, with our `settings` and the user's `options`. `ranks`: per host."""
    alone = len(hosts) == 1
    slots = ["localhost"] if alone else list(hosts)
    command = [
        launcher.mpirun,
        "--allow-run-as-root",
        "--prefix",
        str(Path(launcher.mpirun).parent.parent),
        "--host",
        ",".join(f"{host}:{ranks}" for host in slots),
        "-np",
        str(len(hosts) * ranks),
        # A folder that exists on every host and contains no Python modules.
        "--wdir",
        "/",
    ]
    for name, value in settings.items():
        command += [f"--{BIND_TO}", value] if name == BIND_TO else ["--mca", name, value]
    if SSH_ARGUMENTS in settings:
        options = without_ssh_arguments(options)
    return (*command, *options, launcher.python, "-P", "-m", "berth.train.launching.rank", launcher.run_dir)


def ends_on_failure(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this mpirun ends the job when a rank fails; the user's settings may have disabled that."""
    settings = (*pairwise(command), *environ.items())
    return any(name.endswith("orte_abort_on_non_zero_status") and value == "1" for name, value in settings)
