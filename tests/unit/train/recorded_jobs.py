"""Training jobs that the SDKs request (requests.json, made by `make requests`), as a container sees them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError
from berth.contract.launch_options import read_launch_options
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job, read_job
from berth.train.planning.plan import HostFindings, Plan, make_plan
from berth.train.planning.smddp import Library
from tests.unit.train.planning.plans import LAUNCHER

HARDWARE = {
    "no GPU": Hardware(gpus=0, cuda=None, cpus=8, shm=8 << 30, interfaces=("eth0", "lo")),
    "8 GPUs": Hardware(gpus=8, cuda="13.0", cpus=96, shm=500 << 30, interfaces=("eth0", "lo")),
}
WITHOUT_SMDDP = Library(obstacle="it is not in this image")


@dataclass(frozen=True)
class Request:
    """One CreateTrainingJob request. `name`: the SDK, and what its user wrote."""

    name: str
    fields: Mapping[str, Any]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that SageMaker gives the hosts."""
        resources = self.fields["ResourceConfig"]
        groups = resources.get("InstanceGroups", [resources])
        return tuple(f"algo-{number + 1}" for number in range(sum(group["InstanceCount"] for group in groups)))

    @property
    def hyperparameters(self) -> Mapping[str, str]:
        """The content of hyperparameters.json."""
        return dict(self.fields.get("HyperParameters", {}))

    @property
    def environment(self) -> Mapping[str, str]:
        """The container's variables that the request sets."""
        return dict(self.fields.get("Environment", {}))

    @property
    def replaces_the_entry(self) -> bool:
        """Whether the request starts another program as process 1."""
        return "ContainerEntrypoint" in self.fields

    def lay_out(self, root: Path) -> None:
        """Write the first host's /opt/ml/input/config below `root`."""
        config = root / "input/config"
        config.mkdir(parents=True, exist_ok=True)
        resources = self.fields["ResourceConfig"]
        groups, rest = [], list(self.hosts)
        for group in resources.get("InstanceGroups", []):
            hosts, rest = rest[: group["InstanceCount"]], rest[group["InstanceCount"] :]
            groups.append(
                {
                    "instance_group_name": group["InstanceGroupName"],
                    "instance_type": group["InstanceType"],
                    "hosts": hosts,
                }
            )
        described = {"current_host": self.hosts[0], "hosts": self.hosts, "network_interface_name": "eth0"}
        channels = {
            channel["ChannelName"]: {
                "TrainingInputMode": channel.get("InputMode", "File"),
                "S3DistributionType": channel["DataSource"]["S3DataSource"]["S3DataDistributionType"],
                "RecordWrapperType": "None",
            }
            for channel in self.fields["InputDataConfig"]
        }
        for name, content in {
            "resourceconfig": described | ({"instance_groups": groups} if groups else {}),
            "hyperparameters": self.hyperparameters,
            "inputdataconfig": channels,
        }.items():
            (config / f"{name}.json").write_text(json.dumps(content))

    def job(self, root: Path) -> Job:
        """The job that the first host's entry reads, from files below `root`."""
        self.lay_out(root)
        return read_job(root, self.environment)


def requests() -> dict[str, Request]:
    """All recorded requests by name."""
    recorded = json.loads(Path(__file__).with_name("requests.json").read_text())
    return {
        f"{sdk} {name}": Request(f"{sdk} {name}", fields)
        for sdk, jobs in recorded.items()
        for name, fields in jobs.items()
    }


def planned(request: Request, hardware: Hardware, root: Path) -> Plan | str:
    """The launch plan for a request on this hardware, or the error."""
    job = request.job(root)
    options = read_launch_options(job.hyperparameters, job.program, request.environment)
    findings = HostFindings(hardware, LAUNCHER, WITHOUT_SMDDP if options.smddp else None)
    try:
        return make_plan(job, options, findings, request.environment)
    except JobError as error:
        return str(error)
