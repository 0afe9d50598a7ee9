"""Makes launch plans for the tests, with typical hosts and jobs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth.contract.launch_options import read_launch_options
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job
from berth.train.planning.mpirun import Launcher
from berth.train.planning.plan import HostFindings, Plan, make_plan

LAUNCHER = Launcher("/v/bin/python", "/v/bin/mpirun", 4, "/run/berth", "/k/ssh_config")
CPU = Hardware(gpus=0, cuda=None, cpus=4, shm=4 << 30, interfaces=("eth0", "lo"))
GPU8 = Hardware(gpus=8, cuda="13.0", cpus=96, shm=500 << 30, interfaces=("eth0", "eth1", "lo"))


def job(
    hosts: tuple[str, ...] | int = 1, program: str | None = None, interface: str | None = "eth0", **hyperparameters: str
) -> Job:
    """A job as its first host sees it. `hosts`: their names, or their number."""
    names = tuple(f"algo-{number + 1}" for number in range(hosts)) if isinstance(hosts, int) else hosts
    return Job(
        root=Path("/opt/ml"),
        current_host=names[0],
        hosts=names,
        network_interface=interface,
        hyperparameters=hyperparameters,
        input_data={},
        resources={},
        program=program,
    )


def plan_of(training_job: Job, hardware: Hardware = CPU, environ: Mapping[str, str] = {}, **findings: Any) -> Plan:
    """The plan for a job. `findings`: other fields of HostFindings, such as `launcher`."""
    options = read_launch_options(training_job.hyperparameters, training_job.program, environ)
    return make_plan(training_job, options, HostFindings(hardware, **{"launcher": LAUNCHER, **findings}), environ)
