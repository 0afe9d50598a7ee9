"""The job as SageMaker describes it: hosts, hyperparameters, channels and the program, from /opt/ml/input/config and
the environment.

Hyperparameters are read raw, as strings: sagemaker-training's reader decodes a model named "123" into a number. Its
Environment makes the SM_* variables and a program's arguments (`program_arguments`, `sagemaker_variables`), which user
programs know.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError
from berth.contract.hyperparameters import is_platform, unquote
from berth.train.hardware import Hardware

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Job:
    """One training job as this host sees it.

    `hosts` keeps the order of resourceconfig.json (sorted as text, so algo-10 stands before algo-2); the first one
    leads. `program` is the user's script, relative to the code folder, None for the kit's own run_qa.
    """

    root: Path
    current_host: str
    hosts: tuple[str, ...]
    network_interface: str | None
    hyperparameters: Mapping[str, str]
    input_data: Mapping[str, Any]
    resources: Mapping[str, Any]
    program: str | None = None
    submit_directory: str | None = None

    @property
    def leader(self) -> str:
        """The host that runs mpirun and writes the model."""
        return self.hosts[0]

    @property
    def leads(self) -> bool:
        """Whether this host is the leader."""
        return self.current_host == self.leader

    @property
    def code_dir(self) -> Path:
        """Where the user's program lies and runs."""
        return self.root / "code"


def read_job(root: Path, environ: Mapping[str, str] = os.environ) -> Job:
    """Read the configuration under `root` (/opt/ml). Files that are missing count as empty: one host, no
    hyperparameters.

    Raises JobError for a file that is not JSON or that contradicts itself.
    """
    config = root / "input" / "config"
    resources = _read_object(config / "resourceconfig.json")
    raw = _read_object(config / "hyperparameters.json")
    hosts, current = _read_hosts(resources)
    hyperparameters = {name: value if isinstance(value, str) else json.dumps(value) for name, value in raw.items()}
    interface = resources.get("network_interface_name")
    return Job(
        root=root,
        current_host=current,
        hosts=hosts,
        network_interface=str(interface) if interface else None,
        hyperparameters=hyperparameters,
        input_data=_read_object(config / "inputdataconfig.json"),
        resources={**resources, "hosts": list(hosts), "current_host": current},
        program=environ.get("SAGEMAKER_PROGRAM")
        or unquote(hyperparameters.get("sagemaker_program", "")).strip()
        or None,
        submit_directory=unquote(hyperparameters.get("sagemaker_submit_directory", "")).strip()
        or environ.get("SAGEMAKER_SUBMIT_DIRECTORY")
        or None,
    )


def _read_hosts(resources: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    given = resources.get("hosts") or [resources.get("current_host") or "algo-1"]
    if not isinstance(given, list) or not all(isinstance(host, str) for host in given):
        raise JobError(
            "resourceconfig.json must hold the hosts as a list of names; start the job through SageMaker or build.py "
            "run."
        )
    hosts = tuple(given)
    current = str(resources.get("current_host") or hosts[0])
    if bad := [host for host in hosts if not _HOST_NAME.fullmatch(host)]:
        raise JobError(
            f"resourceconfig.json has host names that no network knows ({', '.join(map(repr, bad))}); correct the "
            "list of hosts."
        )
    if len(set(hosts)) < len(hosts) or current not in hosts:
        raise JobError(
            f"resourceconfig.json says this host is {current!r} and the hosts are {', '.join(hosts)}; "
            "every host must stand in the list once: correct hosts and current_host."
        )
    return hosts, current


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise JobError(
            f"{path} can't be read as JSON ({error}); give the job a file as SageMaker writes it."
        ) from error
    if not isinstance(value, dict):
        raise JobError(
            f"{path} must hold a JSON object, not {type(value).__name__}; give the job a file as SageMaker writes it."
        )
    return value


class _Given(dict[str, Any]):
    """A mapping that counts as given even when it is empty: sagemaker-training would read the file again, which may be
    missing.
    """

    def __bool__(self) -> bool:
        return True


def _decoded(job: Job) -> _Given:
    """Hyperparameters as sagemaker-training decodes them: by JSON, once, else as they are."""
    values = _Given()
    for name, text in job.hyperparameters.items():
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
        if name in ("sagemaker_job_name", "sagemaker_region", "sagemaker_program", "sagemaker_submit_directory"):
            values[name] = unquote(text).strip()
    return values


def program_arguments(job: Job) -> list[str]:
    """The user program's command line, sorted by name, as sagemaker-training passes it: `--epochs 3 --verbose True -b
    4`.
    """
    from sagemaker_training import mapping

    own = {name: value for name, value in _decoded(job).items() if not is_platform(name)}
    return [str(argument) for argument in mapping.to_cmd_args(own)]


def sagemaker_variables(job: Job, hardware: Hardware) -> dict[str, str]:
    """The SM_* variables of this host (SM_CURRENT_HOST and the like are right only on the host that computes them).

    Also sets SAGEMAKER_JOB_NAME, SAGEMAKER_REGION and CURRENT_HOST in this process' environment, as sagemaker-training
    does.
    """
    # Importing the package looks at this variable, and makes folders below the user's home if neither it nor /opt/ml is
    # there.
    os.environ.setdefault("SAGEMAKER_BASE_DIR", str(job.root))
    from sagemaker_training.environment import Environment

    environment = Environment(
        resource_config=_Given(job.resources), input_data_config=_Given(job.input_data), hyperparameters=_decoded(job)
    )
    variables: dict[str, str] = environment.to_env_vars()
    # nvidia-smi is not in every image and the CPU count there ignores the container's quota: say what the plan went by.
    return {**variables, "SM_NUM_GPUS": str(hardware.gpus), "SM_NUM_CPUS": str(max(1, int(hardware.cpus)))}
