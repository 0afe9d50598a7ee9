"""The environment of a host's programs: the container's variables, SageMaker's SM_*, the plan's, then each rank's.

mpirun does not pass this environment on. `host_environment` is stored in each host's run folder
(berth.train.launching.runfolder), and a rank's wrapper adds the variables that mpirun gave it (`rank_environment`).
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
    """The environment of this host's programs. `planned`: the plan's variables, with the job's port."""
    ours = {**environ, **sagemaker_variables(job, hardware), **planned}
    # run_qa starts its process group itself, from BERTH_BACKEND: if transformers started it, run_qa's checks would be
    # skipped. So run_qa does not get the data parallel flag.
    ours["SM_FRAMEWORK_PARAMS"] = framework_parameters(
        ours.get("SM_FRAMEWORK_PARAMS", ""),
        smddp=backend == "smddp" and job.program is not None,
        model_parallel=MP_PARAMETERS in decoded_hyperparameters(job),
    )
    if job.program is not None:
        # Like sagemaker-training, so that a program in a subfolder can import modules from the top of its source.
        folders = [str(job.code_dir), ours.get("PYTHONPATH", "")]
        ours["PYTHONPATH"] = ":".join(folder for folder in folders if folder)
    return ours


def framework_parameters(text: str, *, smddp: bool, model_parallel: bool) -> str:
    """SM_FRAMEWORK_PARAMS with the flags that make transformers' Trainer use SageMaker's libraries.

    The data parallel flag is set only if the job uses that library, because Trainer imports the library if it is set.
    The mpirun flag is set in every model parallel job: transformers' is_sagemaker_mp_enabled requires it.
    """
    parameters = json.loads(text or "{}")
    parameters.pop(_SMDDP_ENABLED, None)
    flags = {_SMDDP_ENABLED: smddp, _MPI_ENABLED: model_parallel}
    return json.dumps(parameters | {name: True for name, wanted in flags.items() if wanted})


class _TruthyDict(dict[str, Any]):
    """A dict that is true even when empty: otherwise sagemaker-training would read the file, which may be missing."""

    def __bool__(self) -> bool:
        return True


def sagemaker_variables(job: Job, hardware: Hardware) -> dict[str, str]:
    """The variables that sagemaker-training sets for a program: SM_*, CURRENT_HOST, SAGEMAKER_JOB_NAME and
    SAGEMAKER_REGION. Some, such as SM_CURRENT_HOST, are right only on the host that computes them.
    """
    # On import the package reads this variable. If neither it nor /opt/ml exists, it makes folders in the user's home.
    os.environ.setdefault("SAGEMAKER_BASE_DIR", str(job.root))
    from sagemaker_training import mapping
    from sagemaker_training.environment import Environment

    environment = Environment(
        resource_config=_TruthyDict(job.resources),
        input_data_config=_TruthyDict(job.input_data),
        hyperparameters=_TruthyDict(decoded_hyperparameters(job)),
    )
    variables: dict[str, str] = environment.to_env_vars()
    # sagemaker-training counts GPUs with nvidia-smi, which may be missing, and CPUs without the container's quota. Use
    # the plan's numbers instead.
    counts = {"num_gpus": hardware.gpus, "num_cpus": hardware.cpus}
    described = json.loads(variables["SM_TRAINING_ENV"]) | counts
    variables |= mapping.to_env_vars({**counts, "training_env": described})
    # sagemaker-training (5.1.4, environment.py) sets these in its own process, from which its programs inherit them.
    return variables | {name: os.environ[name] for name in _PROCESS_VARIABLES}


def rank_environment(
    program: Program, rank: Rank | None, environ: Mapping[str, str], files: Mapping[str, Path]
) -> dict[str, str]:
    """This host's environment, mpirun's own variables, and the rank's variables for torch and the user's script.

    files: variable → file into which the program, or our hooks in it, write something for the wrapper.
    """
    ours = {**program.environment, **{name: str(path) for name, path in files.items()}}
    ours |= {name: value for name, value in environ.items() if name.startswith(_MPI_PREFIXES)}
    if rank is not None and (prefix := environ.get("OPAL_PREFIX")):
        # mpirun does this too, but on a worker it starts from ssh's environment instead of the container's.
        folders = [f"{prefix}/lib", ours.get("LD_LIBRARY_PATH", "")]
        ours["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    if rank is not None and program.world_size:
        ours |= rank.variables()
        if ours.get("BERTH_BACKEND") == "smddp":
            # Trainer of transformers 4 selects its GPU with it. AWS's launcher, smddprun, sets it too, if present.
            ours["SMDATAPARALLEL_LOCAL_RANK"] = str(rank.local_rank)
    return ours
