"""The job as SageMaker describes it: hosts, hyperparameters, channels and the program, from /opt/ml/input/config and
the environment.

Hyperparameters are read raw, as strings: sagemaker-training's reader decodes a model named "123" into a number. It
makes a user program's arguments all the same (`program_arguments`), for user programs know them as it makes them.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError
from berth.contract.host_names import listed
from berth.contract.hyperparameters import is_platform, unquote
from berth.contract.launch_options import MP_PARAMETERS, read_mp_parameters
from berth.contract.own_program import find_program
from berth.runtime.config_files import FOLDER, read_object

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
    config = root / FOLDER
    resources = read_object(config / "resourceconfig.json")
    raw = read_object(config / "hyperparameters.json")
    hosts, current = _read_hosts(resources)
    hyperparameters = {name: value if isinstance(value, str) else json.dumps(value) for name, value in raw.items()}
    interface = resources.get("network_interface_name")
    return Job(
        root=root,
        current_host=current,
        hosts=hosts,
        network_interface=str(interface) if interface else None,
        hyperparameters=hyperparameters,
        input_data=read_object(config / "inputdataconfig.json"),
        resources={**resources, "hosts": list(hosts), "current_host": current},
        program=find_program(hyperparameters, environ),
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
            f"resourceconfig.json says this host is {current!r} and the hosts are {listed(hosts)}; "
            "every host must stand in the list once: correct hosts and current_host."
        )
    return hosts, current


def decoded_hyperparameters(job: Job) -> dict[str, Any]:
    """Hyperparameters as sagemaker-training decodes them: by JSON, once, else as they are.

    An empty mp_parameters says nothing, and is left out, for argument parsers die of the option.
    """
    values: dict[str, Any] = {}
    for name, text in job.hyperparameters.items():
        if name == MP_PARAMETERS:
            with contextlib.suppress(ValueError):  # which the launch plan refuses
                if asked := read_mp_parameters(text):
                    values[name] = asked
            continue
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
        if name in ("sagemaker_job_name", "sagemaker_region", "sagemaker_program", "sagemaker_submit_directory"):
            values[name] = unquote(text).strip()
    return values


def hosts_left_out(job: Job) -> list[str]:
    """The hosts of those instance groups that the estimator's `distribution` leaves out; it names the others."""
    named = decoded_hyperparameters(job).get("sagemaker_distribution_instance_groups")
    groups = job.resources.get("instance_groups")
    if not named or not isinstance(named, list) or not isinstance(groups, list):
        return []
    others = [group for group in groups if isinstance(group, dict) and group.get("instance_group_name") not in named]
    return [str(host) for group in others for host in group.get("hosts", [])]


def divided_channels(job: Job) -> list[str]:
    """The channels of which each host of several has some of the files (S3DistributionType ShardedByS3Key)."""
    if len(job.hosts) == 1:
        return []
    return sorted(
        name
        for name, settings in job.input_data.items()
        if isinstance(settings, dict) and settings.get("S3DistributionType") == "ShardedByS3Key"
    )


def program_arguments(job: Job, *, mp_parameters: bool = False) -> list[str]:
    """The user program's command line, sorted by name, as sagemaker-training passes it: `--epochs 3 --verbose True -b
    4`. It passes `--mp_parameters`, too, which the argument parser of transformers 5 refuses: only where asked for.
    """
    from sagemaker_training import mapping

    decoded = decoded_hyperparameters(job).items()
    own = {name: value for name, value in decoded if not is_platform(name) and (mp_parameters or name != MP_PARAMETERS)}
    return [str(argument) for argument in mapping.to_cmd_args(own)]
