"""What environment a rank gets, from start to end; nothing else sets a variable for it. In the order of a job:

planned_variables      the launch plan's: what the kit sets on this host unless the user has set it
host_environment       of every program of this host: the container's own, SageMaker's SM_*, the plan's
rank_environment       of one rank, in its wrapper: what mpirun tells it, and RANK, WORLD_SIZE and so on
Rank                   its four numbers, by mpirun's variables or by those
set_library_variables  in run_qa itself, for the libraries that it loads later

mpirun carries none of it: `host_environment` travels by each host's run folder (berth.train.runfolder).
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError
from berth.contract.launch_options import MP_PARAMETERS, LaunchOptions
from berth.train import efa, smddp
from berth.train.hardware import Hardware
from berth.train.job import Job, decoded_hyperparameters
from berth.train.runfolder import Program

MASTER_PORT = 29500
_SMDDP_ENABLED, _MPI_ENABLED = "sagemaker_distributed_dataparallel_enabled", "sagemaker_mpi_enabled"
_PROCESS_VARIABLES = ("CURRENT_HOST", "SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION")
_MPI_PREFIXES = ("OMPI_", "PMIX_", "ORTE_", "OPAL_")


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's four numbers, and its host's name where that is known. Without a launcher: the only rank of one."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    host: str = ""

    @classmethod
    def from_mpirun(cls, environ: Mapping[str, str]) -> "Rank | None":
        """From what mpirun sets; None for a program that runs without mpirun."""
        names = ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")
        values = [environ.get(f"OMPI_COMM_WORLD_{name}") for name in names]
        if any(value is None for value in values):
            return None
        rank, local_rank, world_size, local_world_size = (int(value) for value in values if value is not None)
        return cls(rank, local_rank, world_size, local_world_size)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Rank":
        """From RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE. Raises JobError where they contradict each other."""
        names = {"rank": "RANK", "local_rank": "LOCAL_RANK", "world_size": "WORLD_SIZE"}
        given = {field: int(environ[name]) for field, name in names.items() if environ.get(name)}
        world_size = given.get("world_size", 1)
        local = int(environ.get("LOCAL_WORLD_SIZE") or world_size)
        rank = cls(**given, local_world_size=local, host=environ.get("SM_CURRENT_HOST", ""))
        if not 0 <= rank.rank < rank.world_size or (rank.world_size > 1 and "rank" not in given):
            raise JobError(
                f"RANK {environ.get('RANK')} and WORLD_SIZE {environ.get('WORLD_SIZE')} don't go together: "
                "start run_qa through the image's train command, or set both."
            )
        return rank

    @property
    def leads(self) -> bool:
        """Whether this is the rank that speaks and writes."""
        return self.rank == 0

    @property
    def hosts(self) -> int:
        """How many hosts the ranks are on, the same number on each."""
        return self.world_size // self.local_world_size

    def variables(self) -> dict[str, str]:
        """What torch and the user's script read."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }


def planned_variables(
    job: Job, options: LaunchOptions, environ: Mapping[str, str], backend: str, interface: str, threads: int | None
) -> dict[str, str]:
    """What the plan sets: a value of the container's own `environ` goes before ours, one of `mpirun -x` before both.

    `threads` are those of a rank, None for a program that runs without ranks.
    """
    alone = len(job.hosts) == 1
    ours = {
        "BERTH_BACKEND": backend,
        # A single host's name may not resolve (docker run --network=none); several hosts must find the leader.
        "MASTER_ADDR": "127.0.0.1" if alone else job.leader,
        # Where the hosts meet, the leader may choose another one.
        "MASTER_PORT": str(MASTER_PORT),
        # Without these, gloo and NCCL go by the container's own host name, which can be equal on all hosts or resolve
        # to nothing.
        "GLOO_SOCKET_IFNAME": interface,
        "PYTHONUNBUFFERED": "1",
    }
    if backend != "gloo" and not alone:
        ours["NCCL_SOCKET_IFNAME"] = interface
    if backend == "smddp":
        ours |= smddp.variables(job)
    if backend == "gloo" and job.program is not None:
        # transformers' Trainer starts no process group on a CPU without it: each rank would train alone, as rank 0.
        ours["ACCELERATE_USE_CPU"] = "true"
    if threads is not None:
        ours["OMP_NUM_THREADS"] = str(threads)
    if options.efa and not alone:
        ours |= efa.STRICT
    return {**{name: environ.get(name) or value for name, value in ours.items()}, **options.exports}


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


def set_library_variables(threads: int, tensorboard: str) -> None:
    """In this process, one rank of run_qa: what the tokenizer, TensorBoard and datasets read when they are loaded."""
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))  # the tokenizer's threads
    os.environ["TENSORBOARD_LOGGING_DIR"] = tensorboard
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
