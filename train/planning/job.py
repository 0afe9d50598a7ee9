"""The job as SageMaker describes it: hosts, hyperparameters, channels and the program, from /opt/ml/input/config and
the environment.

Hyperparameters stay strings here: sagemaker-training's reader would decode a model named "123" into a number. A user
program's arguments are still made by sagemaker-training (`program_arguments`), because user programs expect its form.
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

    hosts: in the order of resourceconfig.json (sorted as text, so algo-10 comes before algo-2); the first one leads.
    program: the user's script, relative to the code folder; None for berth's own run_qa.
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
        """The first host. The others join it, and it runs mpirun if the job needs that."""
        return self.hosts[0]

    @property
    def leads(self) -> bool:
        """Whether this host is the leader."""
        return self.current_host == self.leader

    @property
    def code_dir(self) -> Path:
        """The folder of the user's program, and its working directory."""
        return self.root / "code"


def read_job(root: Path, environ: Mapping[str, str] = os.environ) -> Job:
    """Read the configuration under `root` (/opt/ml). A missing file counts as empty: one host, no hyperparameters.

    Raises JobError if a file is not JSON or contradicts itself.
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
    names = resources.get("hosts") or [resources.get("current_host") or "algo-1"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise JobError(
            "resourceconfig.json must hold the hosts as a list of names; start the job through SageMaker or build.py "
            "run."
        )
    hosts = tuple(names)
    current = str(resources.get("current_host") or hosts[0])
    if bad := [host for host in hosts if not _HOST_NAME.fullmatch(host)]:
        raise JobError(
            f"resourceconfig.json has invalid host names ({', '.join(map(repr, bad))}); correct the list of hosts."
        )
    if len(set(hosts)) < len(hosts) or current not in hosts:
        raise JobError(
            f"resourceconfig.json says this host is {current!r} and the hosts are {listed(hosts)}; "
            "list every host exactly once, and set current_host to one of them."
        )
    return hosts, current


def decoded_hyperparameters(job: Job) -> dict[str, Any]:
    """Hyperparameters as sagemaker-training decodes them: once, from JSON; a value that is not JSON stays as it is.

    An empty or invalid mp_parameters is dropped: argument parsers fail on an empty one, and the launch plan refuses an
    invalid one.
    """
    values: dict[str, Any] = {}
    for name, text in job.hyperparameters.items():
        if name == MP_PARAMETERS:
            with contextlib.suppress(ValueError):
                if parameters := read_mp_parameters(text):
                    values[name] = parameters
            continue
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
        if name in ("sagemaker_job_name", "sagemaker_region", "sagemaker_program", "sagemaker_submit_directory"):
            values[name] = unquote(text).strip()
    return values


def hosts_left_out(job: Job) -> list[str]:
    """The hosts whose instance group the estimator's `distribution` does not name, if it names any."""
    chosen = decoded_hyperparameters(job).get("sagemaker_distribution_instance_groups")
    groups = job.resources.get("instance_groups")
    if not chosen or not isinstance(chosen, list) or not isinstance(groups, list):
        return []
    others = [group for group in groups if isinstance(group, dict) and group.get("instance_group_name") not in chosen]
    return [str(host) for group in others for host in group.get("hosts", [])]


def divided_channels(job: Job) -> list[str]:
    """In a job of several hosts, the channels whose files are divided among them (ShardedByS3Key)."""
    if len(job.hosts) == 1:
        return []
    return sorted(
        name
        for name, settings in job.input_data.items()
        if isinstance(settings, dict) and settings.get("S3DistributionType") == "ShardedByS3Key"
    )


def program_arguments(job: Job, *, mp_parameters: bool = False) -> list[str]:
    """The user program's arguments, sorted by name, in sagemaker-training's form: `--epochs 3 --verbose True -b 4`.

    `--mp_parameters` is included only if `mp_parameters` is set: sagemaker-training always passes it, but the argument
    parser of transformers 5 refuses it.
    """
    from sagemaker_training import mapping

    decoded = decoded_hyperparameters(job).items()
    own = {name: value for name, value in decoded if not is_platform(name) and (mp_parameters or name != MP_PARAMETERS)}
    return [str(argument) for argument in mapping.to_cmd_args(own)]
