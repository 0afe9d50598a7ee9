"""The environment of a host's programs: the container's own, SageMaker's SM_*, the plan's, then each rank's.

mpirun carries none of it: `host_environment` travels in each host's run folder (berth.train.launching.runfolder), and a
rank's wrapper adds what mpirun tells it (`rank_environment`).
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth.contract.launch_options import MP_PARAMETERS
from berth.runtime.rank import Rank
from berth.train.launching.runfolder import Program
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job, decoded_hyperparameters

_SMDDP_ENABLED, _MPI_ENABLED = "sagemaker_distributed_dataparallel_enabled", "sagemaker_mpi_enabled"
_PROCESS_VARIABLES = ("CURRENT_HOST", "SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION")
_MPI_PREFIXES = ("OMPI_", "PMIX_", "ORTE_", "OPAL_")


def host_environment(
    job: Job, hardware: Hardware, backend: str, planned: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of this host's programs. `planned` are the plan's variables, with the port of the job."""
    ours = {**environ, **sagemaker_variables(job, hardware), **planned}
    # run_qa starts its process group from BERTH_BACKEND alone: if transformers started it, run_qa's checks would be
    # skipped.
    ours["SM_FRAMEWORK_PARAMS"] = framework_parameters(
        ours.get("SM_FRAMEWORK_PARAMS", ""),
        smddp=backend == "smddp" and job.program is not None,
        model_parallel=MP_PARAMETERS in decoded_hyperparameters(job),
    )
    if job.program is not None:
        # As sagemaker-training does: a program in a subfolder may import modules from the top of its source.
        path = [str(job.code_dir), ours.get("PYTHONPATH", "")]
        ours["PYTHONPATH"] = ":".join(part for part in path if part)
    return ours


def framework_parameters(text: str, *, smddp: bool, model_parallel: bool) -> str:
    """SM_FRAMEWORK_PARAMS with the flags by which transformers' Trainer takes SageMaker's libraries: that of the data
    parallel one only where it is used, for Trainer would import it whenever it was asked for; that of mpirun for the
    model parallel one however mpirun was asked for (transformers' is_sagemaker_mp_enabled).
    """
    parameters = json.loads(text or "{}")
    parameters.pop(_SMDDP_ENABLED, None)
    flags = {_SMDDP_ENABLED: smddp, _MPI_ENABLED: model_parallel}
    return json.dumps(parameters | {name: True for name, wanted in flags.items() if wanted})


class _Given(dict[str, Any]):
    """A mapping that counts as given even when it is empty: sagemaker-training would read the file again, which may be
    missing.
    """

    def __bool__(self) -> bool:
        return True


def sagemaker_variables(job: Job, hardware: Hardware) -> dict[str, str]:
    """What sagemaker-training sets for a program on this host: SM_* (SM_CURRENT_HOST and the like are right only on the
    host that computes them), CURRENT_HOST, SAGEMAKER_JOB_NAME and SAGEMAKER_REGION.
    """
    # Importing the package looks at this variable, and makes folders below the user's home if neither it nor /opt/ml is
    # there.
    os.environ.setdefault("SAGEMAKER_BASE_DIR", str(job.root))
    from sagemaker_training import mapping
    from sagemaker_training.environment import Environment

    environment = Environment(
        resource_config=_Given(job.resources),
        input_data_config=_Given(job.input_data),
        hyperparameters=_Given(decoded_hyperparameters(job)),
    )
    variables: dict[str, str] = environment.to_env_vars()
    # nvidia-smi is not in every image and the CPU count there ignores the container's quota: say what the plan went by.
    counts = {"num_gpus": hardware.gpus, "num_cpus": hardware.cpus}
    described = json.loads(variables["SM_TRAINING_ENV"]) | counts
    variables |= mapping.to_env_vars({**counts, "training_env": described})
    # These it sets in its own process' environment, which its programs inherit (5.1.4, environment.py).
    return variables | {name: os.environ[name] for name in _PROCESS_VARIABLES}


def rank_environment(
    program: Program, rank: Rank | None, environ: Mapping[str, str], files: Mapping[str, Path]
) -> dict[str, str]:
    """This host's environment, with what mpirun tells its ranks and the variables that torch and the user's script
    read. `files`: variable → the file that it names, where the program leaves something for us.
    """
    ours = {**program.environment, **{name: str(path) for name, path in files.items()}}
    ours |= {name: value for name, value in environ.items() if name.startswith(_MPI_PREFIXES)}
    if rank is not None and (prefix := environ.get("OPAL_PREFIX")):
        # mpirun does this too, but on a worker on top of ssh's environment instead of the container's.
        libraries = [f"{prefix}/lib", ours.get("LD_LIBRARY_PATH", "")]
        ours["LD_LIBRARY_PATH"] = ":".join(part for part in libraries if part)
    if rank is not None and program.world_size:
        ours |= rank.variables()
        if ours.get("BERTH_BACKEND") == "smddp":
            # By which a Trainer of transformers 4 takes its GPU; its library's launcher sets it, where there is one.
            ours["SMDATAPARALLEL_LOCAL_RANK"] = str(rank.local_rank)
    return ours
