"""SageMaker's data parallel library (SMDDP), the backend `smddp` of torch.distributed: asked for, tried, or not used.

It runs on few instances only, and its import checks that by itself. So nothing here looks at an instance type: a child
process imports it, with the variables that its own launcher would set, and a failure's text is the reason to log.

Source of the variables: sagemaker-training's smdataparallel.py, and
docs.aws.amazon.com/sagemaker/latest/dg/data-parallel-modify-sdp-select-framework.html.
"""

import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass

from berth.contract.hyperparameters import unquote
from berth.runtime import subprocesses
from berth.train.planning.job import Job
from berth.train.startup.smdistributed_finder import OFF, OPEN, PACKAGE, VARIABLE, WITHOUT, choice

MODULE = "smdistributed.dataparallel.torch.torch_smddp"
TIME_LIMIT = 180.0  # seconds; it imports torch, from an image that may just have been pulled
_SERVER_PORT = "7592"
# Of AWS's library alone: the kit's own implementation answers to the same name.
_TRY = f"""
import sys
ours = "berth.train.startup.smdistributed_finder"
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != ours]
try:
    import {MODULE}
except BaseException as error:
    print(f"\\nobstacle: {{type(error).__name__}}: {{' '.join(str(error).split())}}", flush=True)
    raise SystemExit(1)
"""


@dataclass(frozen=True, slots=True)
class Library:
    """What came of trying: `obstacle` is empty where the import succeeded. `launcher` is the library's own, smddprun,
    through which each rank is started (it sets variables), empty where there is none. `present`: there is a wheel of
    AWS's, though it may not be importable here.
    """

    obstacle: str = ""
    launcher: str = ""
    present: bool = False


def instead(chosen: str) -> str:
    """What answers a program's own import of the library where AWS's can't be used; `chosen` is BERTH_SMDISTRIBUTED."""
    if chosen in WITHOUT:
        return f"your program's own import of it fails as well, for {VARIABLE} is {chosen}"
    return "your program's own import of it gets the kit's open implementation, not AWS's library"


def variables(job: Job) -> dict[str, str]:
    """What the library wants in the environment of every rank."""
    if len(job.hosts) > 1:
        ours = {
            "SMDATAPARALLEL_USE_HOMOGENEOUS": "1",
            "SMDATAPARALLEL_SERVER_ADDR": job.leader,
            "SMDATAPARALLEL_SERVER_PORT": _SERVER_PORT,
        }
    else:
        ours = {"SMDATAPARALLEL_USE_SINGLENODE": "1"}
    kind = unquote(job.hyperparameters.get("sagemaker_instance_type", "")).strip()
    kind = kind or str(job.resources.get("current_instance_type") or "")
    if kind:
        ours["SAGEMAKER_INSTANCE_TYPE"] = kind
    # Not for NCCL, whose plugin finds EFA by itself, and nowhere else: SMDDP's launcher sets it, and it asks for it.
    return {**ours, "FI_PROVIDER": "efa"}


def attempt(job: Job, environ: Mapping[str, str], limit: float = TIME_LIMIT) -> Library:
    """Import AWS's library in a child process, unless BERTH_SMDISTRIBUTED says that it is not to be used."""
    if (chosen := choice(environ)) in (OPEN, OFF):
        return Library(f"{VARIABLE} is {chosen}")
    try:
        command = [sys.executable, "-P", "-c", _TRY]
        done = subprocesses.run(command, limit, {**variables(job), **environ}, stderr=subprocess.STDOUT, cwd="/")
    except subprocess.TimeoutExpired:
        return Library(f"its import took longer than {limit:.0f} s", present=True)
    if done.returncode == 0:
        # Of the environment that the wheel is installed in: the kit's own is elsewhere on PATH.
        return Library(launcher=shutil.which("smddprun", path=sysconfig.get_path("scripts")) or "")
    if done.returncode < 0:
        return Library(f"its import crashed ({signal.Signals(-done.returncode).name})", present=True)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    obstacle = next((line for line in reversed(lines) if line.startswith("obstacle: ")), None)
    why = (
        obstacle.removeprefix("obstacle: ")
        if obstacle
        else (lines or ["its import failed without an error message"])[-1]
    )
    return Library(why, present=f"No module named '{PACKAGE}" not in why)
