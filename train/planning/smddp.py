"""Whether SageMaker's data parallel library (SMDDP), the backend `smddp` of torch.distributed, can be used here.

It supports few instance types, which its import checks. So a child process imports it, with the variables that its own
launcher would set; if that fails, the error text is the reason for the launch plan.

Source of the variables: sagemaker-training's smdataparallel.py, and
docs.aws.amazon.com/sagemaker/latest/dg/data-parallel-modify-sdp-select-framework.html.
"""

import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass

from berth.contract.hyperparameters import unquote
from berth.train.planning.job import Job
from berth.train.planning.trial import try_loading
from berth.train.startup.smdistributed_finder import OFF, OPEN, PACKAGE, VARIABLE, WITHOUT, choice

MODULE = "smdistributed.dataparallel.torch.torch_smddp"
TIME_LIMIT = 180.0  # seconds; the import includes torch, perhaps from an image that was only just pulled
_SERVER_PORT = "7592"
# Imports AWS's library only: berth's finder, which would import our implementation by the same name, is removed.
_IMPORT_LIBRARY = f"""
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
    """The result of importing AWS's library.

    obstacle: why the import failed, empty if it succeeded. launcher: path of smddprun, which starts each rank and sets
    variables; empty if missing. present: AWS's wheel is installed, but its import failed here.
    """

    obstacle: str = ""
    launcher: str = ""
    present: bool = False


def imported_instead(chosen: str) -> str:
    """Which library a program imports if AWS's can't be used. `chosen`: BERTH_SMDISTRIBUTED."""
    if chosen in WITHOUT:
        return f"your program's own import of it fails as well, because {VARIABLE} is {chosen}"
    return "your program's own import of it gets the kit's open implementation, not AWS's library"


def variables(job: Job) -> dict[str, str]:
    """The variables that the library needs in every rank."""
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
    # SMDDP requires it, and its launcher sets it. NCCL does not need it: its plugin finds EFA without it.
    return {**ours, "FI_PROVIDER": "efa"}


def attempt(job: Job, environ: Mapping[str, str], limit: float = TIME_LIMIT) -> Library:
    """Import AWS's library in a child process, unless BERTH_SMDISTRIBUTED rules it out. `limit`: in seconds."""
    if (chosen := choice(environ)) in (OPEN, OFF):
        return Library(f"{VARIABLE} is {chosen}")
    obstacle = try_loading(_IMPORT_LIBRARY, (), {**variables(job), **environ}, limit)[1]
    if obstacle:
        return Library(obstacle, present=f"No module named '{PACKAGE}" not in obstacle)
    # Search only the environment that contains the wheel: berth's own smddprun is elsewhere on PATH.
    return Library(launcher=shutil.which("smddprun", path=sysconfig.get_path("scripts")) or "")
