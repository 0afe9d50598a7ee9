"""The mpirun command line, for Open MPI 4. Pure, but for finding mpirun.

Ranks get their environment and write their output through their host's run folder (berth.train.launching.rank), so
mpirun carries neither: no `-x`, which would give every host the leader's SM_* values, and no `--tag-output`, which cuts
lines in the middle.
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
from berth.train.planning.mpirun_settings import (
    BIND_TO,
    SSH_ARGUMENTS,
    Setting,
    UserSetting,
    file_settings,
    without_ssh_arguments,
)
from berth.train.startup.sdk3_driver import without_hooks

_MAJOR = 4
"""The version of Open MPI whose options the plan knows."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """What launches on this host. `major` is Open MPI's, 0 if there is none; `ssh_config` is needed for several hosts
    only; `parameters` are those of Open MPI's files in the image.
    """

    python: str
    mpirun: str
    major: int
    run_dir: str
    ssh_config: str
    parameters: Mapping[str, UserSetting] = field(default_factory=dict)


def find_mpirun() -> tuple[str, int]:
    """Path of mpirun and the major version that it reports; ('', 0) if there is none or it doesn't run. Never the hook
    for SDK v3.

    Takes an OPAL_PREFIX that is another Open MPI's out of this process' environment.
    """
    path = shutil.which("mpirun", path=without_hooks(os.environ.get("PATH", "")))
    if path is None:
        return "", 0
    if of_another(path, os.environ):
        del os.environ["OPAL_PREFIX"]
    done = subprocess.run([path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return path, major_version(done.stdout)


def image_parameters(mpirun: str, home: Path) -> dict[str, UserSetting]:
    """The parameters that the image's files set for this mpirun; those in `home` go before the others."""
    prefix = Path(mpirun).parent.parent
    installed = Path("/etc/openmpi") if prefix == Path("/usr") else prefix / "etc"
    files = (installed / "openmpi-mca-params.conf", home / ".openmpi" / "mca-params.conf")
    return {name: setting for file in files for name, setting in file_settings(file).items()}


def major_version(text: str) -> int:
    """4 from `mpirun (Open MPI) 4.1.8`; 0 if the text is something else's."""
    match = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.\d+", text)
    return int(match[1]) if match else 0


def of_another(mpirun: str, environ: Mapping[str, str]) -> bool:
    """Whether OPAL_PREFIX, where an Open MPI that was moved looks for its parts, is not this mpirun's own folder.

    The image sets it for its own. One from Debian's packages, or in /opt/amazon, is where it was built for and would be
    led astray.
    """
    prefix = environ.get("OPAL_PREFIX", "")
    return bool(prefix) and not Path(mpirun).is_relative_to(prefix)


# The frames in which mpirun says that a rank has ended badly. Why it did is in the rank's own report.
_NOTICE = re.compile(
    r"Primary job +terminated normally|one or more processes exited with non-zero status|noticed that process rank|"
    r"MPI_ABORT was invoked on rank"  # by mpi4py's runner, when the program has raised
)


def _is_edge(line: str) -> bool:
    return len(line) > 20 and set(line.strip()) == {"-"}


def without_notices(lines: Iterable[str]) -> Iterator[str]:
    """What mpirun says, line by line, but for blank lines and those frames."""
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


# What it says where it gives the job up, in its help texts (4.1.8). "may" and "likely" are warnings.
_ABORT = re.compile(
    r"now going to abort|will now (?:be )?abort|will abort now|will therefore abort|we are aborting|^Aborting\b"
)
_UNREACHABLE = "unable to reach each other"
_ABORT_CHARACTERS = 700


def says_abort(line: str) -> bool:
    """Whether mpirun says in this line that it ends the job, which it then does not always do."""
    return _ABORT.search(line) is not None


def abort_sentence(lines: Sequence[str]) -> str:
    """Why the job ends, from mpirun's lines up to the one that `says_abort`: its own words, since the frame of dashes
    began.
    """
    begin = max((number + 1 for number, line in enumerate(lines) if _is_edge(line)), default=0)
    words = " ".join(" ".join(lines[begin:]).split())
    if len(words) > _ABORT_CHARACTERS:
        words = f"{words[: _ABORT_CHARACTERS - 1]}…"
    advice = (
        "; correct what chooses the network, in the custom MPI options and the variables OMPI_MCA_*, such as btl or "
        "btl_tcp_if_exclude, and let the hosts reach each other on all ports (security group)."
        if _UNREACHABLE in words
        else ""
    )
    return f"mpirun aborts the job: {words}{advice}"


def check_version(launcher: Launcher) -> None:
    """JobError for an Open MPI whose options we don't know."""
    if launcher.major == 0:
        raise JobError("mpirun is not on PATH or doesn't answer; install Open MPI 4.1 in the image (the kit's has it).")
    if launcher.major != _MAJOR:
        raise JobError(
            f"mpirun is Open MPI {launcher.major}, whose options differ; put one of version {_MAJOR} first on PATH."
        )


def our_settings(launcher: Launcher, interface: str, *, alone: bool) -> list[Setting]:
    """What the plan sets for mpirun, `alone` for one host, unless the user has set it (mpirun_settings)."""
    parameters = {
        BIND_TO: "none",
        "orte_abort_on_non_zero_status": "1",
        # A container may not read another process' memory (ptrace), and Open MPI complains when it can't.
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
    return [Setting(name, value) for name, value in parameters.items()]


def mpirun_command(
    launcher: Launcher, hosts: Sequence[str], ranks: int, settings: Sequence[Setting], options: Sequence[str]
) -> tuple[str, ...]:
    """The whole command, with those of our `settings` that stay beside the user's own `options`."""
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
        # A folder that exists on every host and holds no one's modules.
        "--wdir",
        "/",
    ]
    for setting in settings:
        command += setting.words
    if any(setting.name == SSH_ARGUMENTS for setting in settings):
        options = without_ssh_arguments(options)
    return (*command, *options, launcher.python, "-P", "-m", "berth.train.launching.rank", launcher.run_dir)


def ends_on_failure(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this mpirun ends the whole job when a rank fails, which the user's own settings may have undone."""
    settings = (*pairwise(command), *environ.items())
    return any(name.endswith("orte_abort_on_non_zero_status") and value == "1" for name, value in settings)
