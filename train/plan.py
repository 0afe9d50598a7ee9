"""The launch plan: what runs, how often, on which hosts and why. Pure: job, hardware and environment in, one value out.

A plan can be printed (`render`) and compared; nothing here starts a process or touches a file.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from berth.contract.errors import JobError
from berth.contract.launch_options import REQUIRE_EFA, LaunchOptions, read_launch_options
from berth.contract.masking import STARS, masked, shown
from berth.train import efa, smddp
from berth.train.hardware import SMALL_SHM_BYTES, Hardware
from berth.train.job import Job, program_arguments
from berth.train.mpirun import Launcher, mpirun_command

Backend = Literal["smddp", "nccl", "gloo"]

MASTER_PORT = 29500
# Settings of libraries: what the user sets of these for all hosts holds no secret.
_OF_LIBRARIES = ("NCCL_", "FI_", "OMP_", "GLOO_", "TORCH_")
_HOSTS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How the job runs. Equal on every host but for `interface` and `environment`, which are this host's.

    `program` is one rank's command and `command` what is started (on the leader only, for mpirun): both are argument
    lists. `name` is the user's script, empty for the kit's own program; `exported` are the variables that the user gave
    mpirun for all hosts.
    """

    kind: Literal["mpirun", "process"]
    program: tuple[str, ...]
    name: str
    hosts: tuple[str, ...]
    ranks_per_host: int
    backend: Backend
    backend_reason: str
    interface: str
    environment: Mapping[str, str]
    command: tuple[str, ...]
    reasons: tuple[str, ...]
    exported: frozenset[str] = frozenset()
    debug: bool = False

    @property
    def kit(self) -> bool:
        """Whether the kit's own run_qa runs."""
        return not self.name

    @property
    def shell(self) -> bool:
        """Whether the program is a shell script, whose children must get its signals as well."""
        return self.name.endswith(".sh")

    @property
    def world_size(self) -> int:
        """Ranks of the whole job (for kind 'process': independent programs)."""
        return len(self.hosts) * self.ranks_per_host

    def render(self, host: str) -> str:
        """What `host` logs before anything runs: the whole plan on the leader, one line elsewhere. Colons, never
        `name=value`: notebooks' metric expressions read this log too.
        """
        backend = f"{self.backend}, over {self.interface}: {self.backend_reason}"
        if host != self.hosts[0]:
            whole = f"the whole of it is in the log of {self.hosts[0]}"
            return _without_equals(f"launch plan: ranks {self._ranks()}; backend {backend}; {whole}")
        program = f"{self.name}, your own: {shlex.join(masked(self.program))}" if self.name else "run_qa, the kit's own"
        rows = [
            ("program", program),
            ("hosts", self._hosts()),
            ("ranks", self._ranks()),
            ("backend", backend),
            *(("because", reason) for reason in self.reasons),
            *(self._details() if self.debug else ()),
        ]
        return "\n".join(["launch plan", *(f"  {name}: {_without_equals(value)}" for name, value in rows)])

    def _hosts(self) -> str:
        others = list(self.hosts[1:])
        if not others:
            return f"1: {self.hosts[0]}"
        if (more := len(others) - _HOSTS_SHOWN) > 0:
            others = [*others[:_HOSTS_SHOWN], f"{more} more"]
        return f"{len(self.hosts)}: {self.hosts[0]} leads, then {', '.join(others)}"

    def _ranks(self) -> str:
        if self.kind == "process":
            return "none, the program runs once" + (" on each host, by itself" if len(self.hosts) > 1 else "")
        return f"{self.ranks_per_host} on each host, {self.world_size} in all, by mpirun"

    def _details(self) -> list[tuple[str, str]]:
        settings = ", ".join(f"{name} {self._setting(name, value)}" for name, value in sorted(self.environment.items()))
        return [
            ("each rank", shlex.join(masked(self.program))),
            ("settings", settings or "none"),
            (f"launch by {self.kind}", shlex.join(masked(self.command))),
        ]

    def _setting(self, name: str, value: str) -> str:
        return STARS if name in self.exported and not name.startswith(_OF_LIBRARIES) else shown(name, value)


def _without_equals(text: str) -> str:
    return text.replace("=", ": ")


def make_plan(
    job: Job,
    hardware: Hardware,
    environ: Mapping[str, str],
    launcher: Launcher,
    library: smddp.Library | None = None,
    fabric: efa.Fabric | None = None,
) -> Plan:
    """Decide. `environ` is the container's own environment; what is set there goes before what we would choose.

    `library` is what came of trying SMDDP, None where it was not asked for; `fabric` is what there is of EFA, None
    where nobody looked. Raises JobError, one sentence for each thing that is wrong.
    """
    asked = read_launch_options(job.hyperparameters, job.program, environ)
    problems = list(asked.problems)
    reasons: list[str] = []
    gpus = hardware.usable_gpus
    if hardware.gpus and not hardware.cuda:
        reasons.append(
            f"{hardware.gpus} GPUs are here but this image's torch is a CPU build: use an image of a CUDA profile"
        )

    kit = job.program is None
    kind: Literal["mpirun", "process"] = "mpirun" if kit or asked.mpi else "process"
    ranks, why = _ranks_per_host(asked, kind, gpus)
    if kind == "process" and asked.processes is not None:
        reasons.append(
            f"{asked.processes_source} has no effect without a distribution: set BERTH_DISTRIBUTION to mpi as well"
        )
    elif gpus and asked.processes and asked.processes > gpus:
        problems.append(
            f"{asked.processes} processes per host were asked for but a host has {gpus} GPUs; ask for {gpus} or fewer."
        )
    backend, choice = _backend(gpus, library if asked.smddp else None)
    alone = len(job.hosts) == 1
    if asked.efa and not alone and fabric is not None and (missing := _without_efa(backend, fabric)):
        problems.append(
            f"{REQUIRE_EFA} is set but data between hosts would go over TCP, for {missing}; fix that, or unset it."
        )
    if problems:
        raise JobError(" ".join(problems))
    if kind == "process" and not alone:
        why = _apart(len(job.hosts))
    reasons.append("; ".join([*asked.reasons, why]))
    if kind == "process" and gpus > 1:
        reasons.append(
            f"your program runs once per host and may leave {gpus - 1} of {gpus} GPUs idle; set BERTH_DISTRIBUTION to "
            "mpi in the "
            "estimator's environment to run it once per GPU"
        )
    elif kind == "mpirun" and gpus > ranks:
        reasons.append(f"{gpus - ranks} of {gpus} GPUs stay idle, for {ranks} processes per host were asked for")
    if hardware.shm is not None and hardware.shm < SMALL_SHM_BYTES:
        reasons.append(_little_shm(hardware.shm, ranks if backend != "gloo" else 1))
    if fabric is not None and (fabric.devices or (backend != "gloo" and not alone)):
        reasons.append(efa.network_line(fabric, backend, alone=alone))
    if asked.efa and alone:
        reasons.append(f"{REQUIRE_EFA} has no effect on one host, whose ranks need no network")
    interface = choose_interface(job.network_interface, hardware.interfaces, alone)
    if job.network_interface and interface != job.network_interface and not alone:
        reasons.append(
            f"interface {interface}: {job.network_interface}, which resourceconfig.json names, is not on this host"
        )
    python = launcher.python
    program = (python, "-P", "-m", "berth.train.run_qa") if kit else _user_command(job, asked, python)
    if backend == "smddp" and library is not None and library.launcher:
        program = (library.launcher, *program)
    command = (
        mpirun_command(launcher, job.hosts, ranks, interface, asked.mpi_options)
        if kind == "mpirun"
        else (python, "-P", "-m", "berth.train.rank", launcher.run_dir)
    )
    return Plan(
        kind=kind,
        program=program,
        name=job.program or "",
        hosts=job.hosts,
        ranks_per_host=ranks,
        backend=backend,
        backend_reason=choice,
        interface=interface,
        environment=_environment(job, hardware, environ, kind, ranks, backend, interface, asked),
        command=tuple(command),
        reasons=tuple(reasons),
        exported=frozenset(asked.exports),
        debug=asked.debug,
    )


def _apart(hosts: int) -> str:
    """SageMaker makes one archive of every host's /opt/ml/model and asks that names do not clash (docs.aws.amazon.com,
    "How Amazon SageMaker AI Processes Training Output"); build.py keeps the first host's file.
    """
    return (
        "your own program runs once per host unless a distribution is asked for: "
        f"{hosts} trainings apart, whose /opt/ml/model all go into one model.tar.gz: of files of one name only one "
        "stays, so save the model on one host (the first of SM_HOSTS); or set BERTH_DISTRIBUTION to mpi for one "
        "training on all"
    )


def _ranks_per_host(asked: LaunchOptions, kind: str, gpus: int) -> tuple[int, str]:
    if kind == "process":
        return 1, "your own program runs once per host unless a distribution is asked for"
    if asked.processes is not None:
        return asked.processes, f"{asked.processes} processes per host: {asked.processes_source} says so"
    if gpus:
        return gpus, f"{gpus} processes per host: one for each GPU"
    return 1, "1 process per host: no GPU, and processes_per_host is not set"


def _backend(gpus: int, library: smddp.Library | None) -> tuple[Backend, str]:
    """The backend, and in a few words why. `library` is None where SMDDP was not asked for."""
    if library is not None and not library.obstacle:
        return "smddp", "smdistributed dataparallel was asked for, and its library can be imported"
    backend: Backend = "nccl" if gpus else "gloo"
    why = f"{gpus} GPUs on each host" if gpus else "no GPU that torch can use"
    if library is None:
        return backend, why
    return backend, f"{why}; smdistributed dataparallel was asked for but can't be used ({library.obstacle})"


def _without_efa(backend: Backend, fabric: efa.Fabric) -> str:
    return "the ranks use gloo, which knows no EFA" if backend == "gloo" else fabric.missing


def _little_shm(size: int, nccl_ranks: int) -> str:
    """NCCL takes a file of 9.6 MiB in /dev/shm for each connection between GPUs that can't reach each other's memory,
    and 64 MiB, Docker's default, are full with four of them (github.com/NVIDIA/nccl/issues/290 and 525). With NVLink it
    takes little: so a reason, and no error.
    """
    nccl = (
        f"NCCL joins {nccl_ranks} GPUs through it, with about 10 MiB for each connection that is not NVLink, and"
        if nccl_ranks > 1
        else "data loader workers or NCCL"
    )
    return (
        f"/dev/shm has only {size >> 20} MiB: {nccl} may die of a bus error; keep dataloader_num_workers at 0, or give "
        "the container more (docker run --shm-size, or shm_size in the local session's container_config)"
    )


def _user_command(job: Job, asked: LaunchOptions, python: str) -> tuple[str, ...]:
    program = str(job.program)
    if program.endswith(".sh"):
        return ("bash", program, *program_arguments(job))
    # mpi4py's runner calls MPI_Abort when the program raises, so that ranks inside a collective do not wait for it.
    runner = ("-m", "mpi4py") if asked.mpi4py else ()
    return (python, *runner, program, *program_arguments(job))


def _environment(
    job: Job,
    hardware: Hardware,
    environ: Mapping[str, str],
    kind: str,
    ranks: int,
    backend: str,
    interface: str,
    asked: LaunchOptions,
) -> dict[str, str]:
    alone = len(job.hosts) == 1
    ours = {
        "BERTH_BACKEND": backend,
        # A single host's name may not resolve (docker run --network=none); several hosts must find the leader.
        "MASTER_ADDR": "127.0.0.1" if alone else job.leader,
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
    if kind == "mpirun":
        ours["OMP_NUM_THREADS"] = str(max(1, int(hardware.cpus) // ranks))
    strict = efa.STRICT if asked.efa and not alone else {}
    return {**{name: environ.get(name) or value for name, value in ours.items()}, **strict, **asked.exports}


def choose_interface(named: str | None, available: Sequence[str], alone: bool) -> str:
    """The interface that hosts talk over: the one that SageMaker names if it exists (local mode of SDK v3 names one
    that doesn't), else the first that is not lo. One host alone needs no network at all.
    """
    if alone:
        return "lo"
    if named in available and named is not None:
        return named
    return next((name for name in available if name != "lo"), "lo")
