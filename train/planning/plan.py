"""The launch plan: what runs, how often, on which hosts and why. Pure: made from job, hardware and environment.

A plan can be printed (`render`) and compared. This module starts no process and reads no file.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from berth.contract.errors import JobError
from berth.contract.host_names import listed
from berth.contract.launch_options import REQUIRE_EFA, SMDISTRIBUTED, TRACE, LaunchOptions
from berth.contract.masking import STARS, masked, shown
from berth.contract.own_program import run_qa_error
from berth.contract.words import counted
from berth.runtime.interfaces import choose_interface
from berth.train.planning import efa, model_parallel, sentences, smddp
from berth.train.planning.hardware import SMALL_SHM_BYTES, Hardware
from berth.train.planning.job import Job, divided_channels, hosts_left_out, program_arguments
from berth.train.planning.mpirun import Launcher, check_version, mpirun_command, our_settings
from berth.train.planning.mpirun_settings import user_settings, without_conflicts
from berth.train.planning.planned_variables import planned_variables

Backend = Literal["smddp", "nccl", "gloo"]
Kind = Literal["mpirun", "process"]

# Library settings, which contain no secrets. The log shows their values even if the user exports them to all hosts.
_LIBRARY_PREFIXES = ("NCCL_", "FI_", "OMP_", "GLOO_", "TORCH_")


@dataclass(frozen=True, slots=True)
class Plan:
    """How the job runs. The same on every host, except `interface` and `environment`, which are this host's.

    program: one rank's command. command: what a host starts; for kind `mpirun` only the leader starts it. name: the
    user's script, empty for berth's own program. exported: names of the variables that the user passes to mpirun for
    all hosts. idle_gpus: the warning about GPUs that the job may not use, empty if there are none.
    """

    kind: Kind
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
    idle_gpus: str = ""
    exported: frozenset[str] = frozenset()
    debug: bool = False

    @property
    def is_run_qa(self) -> bool:
        """Whether berth's own run_qa runs."""
        return not self.name

    @property
    def module_program(self) -> tuple[str, ...]:
        """One rank's command if the source folder is installed as a package: `-m train` for `train.py`, as
        sagemaker-training runs it. Whether it is a package is known only after the source was downloaded.
        """
        at = self.program.index(self.name)
        module = self.name.removesuffix(".py").replace("/", ".")
        return (*self.program[:at], "-m", module, *self.program[at + 1 :])

    @property
    def shell(self) -> bool:
        """Whether the program is a shell script. Its child processes must get its signals too."""
        return self.name.endswith(".sh")

    @property
    def world_size(self) -> int:
        """Number of ranks of the whole job; for kind `process`, of independent programs."""
        return len(self.hosts) * self.ranks_per_host

    def render(self, host: str) -> str:
        """What `host` logs before anything runs: the whole plan on the leader, one line on a worker.

        Never writes `name=value` but `name: value`: the metric expressions of notebooks match the former.
        """
        backend = f"{self.backend}, over {self._network()}: {self.backend_reason}"
        first = [self.idle_gpus] if self.idle_gpus else []
        if host != self.hosts[0]:
            where = f"see the log of {self.hosts[0]} for the whole plan"
            line = _without_equals(f"launch plan: ranks {self._ranks()}; backend {backend}; {where}")
            return "\n".join([*first, line])
        program = f"{self.name}, your own: {shlex.join(masked(self.program))}" if self.name else "run_qa, the kit's own"
        rows = [
            ("program", program),
            ("hosts", self._hosts()),
            ("ranks", self._ranks()),
            ("backend", backend),
            *(("because", reason) for reason in self.reasons),
            *(self._details() if self.debug else ()),
        ]
        return "\n".join([*first, "launch plan", *(f"  {name}: {_without_equals(value)}" for name, value in rows)])

    def _network(self) -> str:
        """The interface that the backend uses, and the user's variable if that sets another than the plan's."""
        variable = "GLOO_SOCKET_IFNAME" if self.backend == "gloo" else "NCCL_SOCKET_IFNAME"
        interface = self.environment.get(variable, self.interface)
        return interface if interface == self.interface else f"{interface} (set by {variable})"

    def _hosts(self) -> str:
        if len(self.hosts) == 1:
            return f"1: {self.hosts[0]}"
        return f"{len(self.hosts)}: {self.hosts[0]} leads, then {listed(self.hosts[1:])}"

    def _ranks(self) -> str:
        if self.kind == "process":
            return "none, the program runs once" + (" on each host, independently" if len(self.hosts) > 1 else "")
        return f"{self.ranks_per_host} on each host, {self.world_size} in all, by mpirun"

    def _details(self) -> list[tuple[str, str]]:
        settings = ", ".join(f"{name} {self._setting(name, value)}" for name, value in sorted(self.environment.items()))
        return [
            ("each rank", shlex.join(masked(self.program))),
            ("settings", settings or "none"),
            (f"launch by {self.kind}", shlex.join(masked(self.command))),
        ]

    def _setting(self, name: str, value: str) -> str:
        return STARS if name in self.exported and not name.startswith(_LIBRARY_PREFIXES) else shown(name, value)


def _without_equals(text: str) -> str:
    return text.replace("=", ": ")


@dataclass(frozen=True, slots=True)
class HostFindings:
    """What a plan needs to know of this host and its image.

    library: the result of importing SMDDP, None if the job does not request it. fabric: the parts of EFA, None if
    nobody looked. transformers: its version in the image, empty if it is missing or was not looked up.
    """

    hardware: Hardware
    launcher: Launcher
    library: smddp.Library | None = None
    fabric: efa.Fabric | None = None
    transformers: str = ""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Launcher, ranks per host, backend and interface, with the reasons."""

    kind: Kind
    ranks: int
    ranks_reason: str
    backend: Backend
    backend_reason: str
    interface: str


def make_plan(job: Job, options: LaunchOptions, findings: HostFindings, environ: Mapping[str, str]) -> Plan:
    """Make the plan. `environ`, the container's own environment, overrides the variables that we would set.

    Raises JobError with one sentence per problem.
    """
    choice = _choose(job, options, findings)
    ranks = choice.ranks * len(job.hosts) if choice.kind == "mpirun" else 1
    settings = {**environ, **options.exports}
    problems = [*options.problems, *_problems(job, options, findings, choice, settings)]
    problems += model_parallel.problems(options, None if problems else ranks)
    if problems:
        raise JobError(" ".join(problems))
    by_mpirun = choice.kind == "mpirun"
    command, left_out = _command(job, options, findings.launcher, choice, settings)
    threads = max(1, findings.hardware.cpus // choice.ranks) if by_mpirun else None
    return Plan(
        kind=choice.kind,
        program=_program(job, options, findings, choice),
        name=job.program or "",
        hosts=job.hosts,
        ranks_per_host=choice.ranks,
        backend=choice.backend,
        backend_reason=choice.backend_reason,
        interface=choice.interface,
        environment=planned_variables(job, options, environ, choice.backend, choice.interface, threads)
        | _open_library(options, findings, choice),
        command=command,
        reasons=(
            *_reasons(job, options, findings, choice),
            *left_out,
            *sentences.ineffective_variables(settings),
            *sentences.gloo_interface_warning(settings, choice.backend),
        ),
        idle_gpus=_idle_gpus(options, choice, findings.hardware.usable_gpus),
        exported=frozenset(options.exports),
        debug=options.debug,
    )


def _command(
    job: Job, options: LaunchOptions, launcher: Launcher, choice: _Choice, settings: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command to start, and a line of the plan for each of our mpirun settings that is dropped."""
    if choice.kind == "process":
        return (launcher.python, "-P", "-m", "berth.train.launching.rank", launcher.run_dir), ()
    check_version(launcher)
    theirs = user_settings(options.mpi_options, settings, launcher.parameters)
    ours = our_settings(launcher, choice.interface, alone=len(job.hosts) == 1)
    kept, left_out = without_conflicts(ours, theirs)
    return mpirun_command(launcher, job.hosts, choice.ranks, kept, options.mpi_options), left_out


def _open_library(options: LaunchOptions, findings: HostFindings, choice: _Choice) -> dict[str, str]:
    """If AWS's wheel is in the image but can't be imported here, have programs import berth's implementation."""
    broken = options.smddp and choice.backend != "smddp" and findings.library is not None and findings.library.present
    return {SMDISTRIBUTED: "open"} if broken and not options.smdistributed else {}


def launch_kind(job: Job, options: LaunchOptions) -> Kind:
    """`mpirun` for run_qa and if the job requests mpirun; otherwise `process`: each host starts the program."""
    return "mpirun" if job.program is None or options.mpi else "process"


def needs_ssh(job: Job, options: LaunchOptions) -> bool:
    """Whether mpirun has to reach other hosts."""
    return launch_kind(job, options) == "mpirun" and len(job.hosts) > 1


def _choose(job: Job, options: LaunchOptions, findings: HostFindings) -> _Choice:
    kind = launch_kind(job, options)
    gpus = findings.hardware.usable_gpus
    ranks, why = _ranks_per_host(job, options, kind, gpus)
    if kind == "process" and len(job.hosts) > 1:
        why = sentences.independent_trainings(len(job.hosts))
    backend, backend_reason = _backend(gpus, findings.library if options.smddp else None)
    if options.smddp and backend != "smddp" and job.program is not None:
        backend_reason += f"; {smddp.imported_instead(options.smdistributed)}"
    interface = choose_interface(job.network_interface, findings.hardware.interfaces, alone=len(job.hosts) == 1)
    return _Choice(kind, ranks, why, backend, backend_reason, interface)


def _problems(
    job: Job, options: LaunchOptions, findings: HostFindings, choice: _Choice, settings: Mapping[str, str]
) -> list[str]:
    """Problems that show only on this host and in its image. `settings`: all variables that the user sets."""
    problems = []
    gpus = findings.hardware.usable_gpus
    if job.program is None and (refusal := run_qa_error(findings.transformers, findings.hardware.cuda or "")):
        problems.append(refusal)
    if choice.kind == "mpirun" and gpus and options.processes and options.processes > gpus:
        problems.append(
            f"{options.processes} processes per host were asked for but a host has {counted(gpus, 'GPU')}; ask for "
            f"{gpus} or fewer."
        )
    if choice.kind == "mpirun" and (left_out := hosts_left_out(job)):
        problems.append(
            f"distribution is for one instance group and leaves out {listed(left_out)}, but mpirun starts ranks on "
            "every host of a job: give the estimator instances of one kind that all train."
        )
    missing = ""
    if options.efa and len(job.hosts) > 1 and findings.fabric is not None:
        without = (
            "the ranks use gloo, which does not support EFA" if choice.backend == "gloo" else findings.fabric.missing
        )
        missing = efa.variable_against_efa(settings) or without
    if missing:
        problems.append(
            f"{REQUIRE_EFA} is set but data between hosts would go over TCP because {missing}; fix that, or unset it."
        )
    return problems


def _reasons(job: Job, options: LaunchOptions, findings: HostFindings, choice: _Choice) -> list[str]:
    """Why the plan is as it is, and which settings have no effect."""
    hardware, fabric = findings.hardware, findings.fabric
    gpus, alone = hardware.usable_gpus, len(job.hosts) == 1
    reasons = []
    if hardware.gpus and not hardware.cuda:
        reasons.append(
            f"this host has {counted(hardware.gpus, 'GPU')} but this image's torch is a CPU build: use an image of a "
            "CUDA profile"
        )
    if choice.kind == "process" and options.processes is not None:
        reasons.append(
            f"{options.processes_source} has no effect without a distribution: set BERTH_DISTRIBUTION to mpi as well"
        )
    if job.program is not None and options.trace:
        reasons.append(f"{TRACE} has no effect on your own program: it traces run_qa's steps only")
    if job.program is not None and options.processes is None and "processes_per_host" in job.hyperparameters:
        reasons.append(
            "the hyperparameter processes_per_host is passed to your program: to set the number of ranks per host, set "
            "BERTH_DISTRIBUTION to mpi and BERTH_PROCESSES_PER_HOST to that number"
        )
    reasons.append("; ".join([*options.reasons, choice.ranks_reason]))
    if choice.kind == "mpirun":
        reasons += model_parallel.reasons(options, choice.ranks * len(job.hosts), findings.transformers)
    if choice.kind == "mpirun" and gpus > choice.ranks:
        idle = gpus - choice.ranks
        reasons.append(f"{idle} of {gpus} GPUs stay idle: the job requests {choice.ranks} processes per host")
    if choice.kind == "mpirun" and job.program is not None and (divided := divided_channels(job)):
        reasons.append(sentences.divided_channels_warning(divided))
    if hardware.shm is not None and hardware.shm < SMALL_SHM_BYTES:
        reasons.append(sentences.small_shm_warning(hardware.shm, choice.ranks if choice.backend != "gloo" else 1))
    if fabric is not None and (fabric.devices or (choice.backend != "gloo" and not alone)):
        reasons.append(efa.network_line(fabric, choice.backend, alone=alone))
    if job.network_interface and choice.interface != job.network_interface and not alone:
        reasons.append(
            f"interface {choice.interface}: this host does not have {job.network_interface}, which resourceconfig.json "
            "names"
        )
    return reasons


def _idle_gpus(options: LaunchOptions, choice: _Choice, gpus: int) -> str:
    """The warning about idle GPUs, empty if it does not apply.

    A generic Estimator of the SDK does not send `distribution=`, so the job can't tell whether the user has set it.
    """
    if choice.kind == "mpirun" or gpus < 2 or options.reasons:  # reasons: the user has requested how to launch
        return ""
    return (
        f"{gpus - 1} of {gpus} GPUs may stay idle, because your program runs once per host unless a distribution is "
        'asked for: give the estimator environment={"BERTH_DISTRIBUTION": "mpi"} to run it once per GPU, or a PyTorch '
        f'or HuggingFace estimator distribution={{"mpi": {{"enabled": True, "processes_per_host": {gpus}}}}}'
    )


def _program(job: Job, options: LaunchOptions, findings: HostFindings, choice: _Choice) -> tuple[str, ...]:
    """The command of one rank."""
    python = findings.launcher.python
    run_qa = (python, "-P", "-m", "berth.train.run_qa")
    program = run_qa if job.program is None else _user_command(job, options, findings)
    if choice.backend == "smddp" and findings.library is not None and findings.library.launcher:
        return (findings.library.launcher, *program)
    return program


def _ranks_per_host(job: Job, options: LaunchOptions, kind: Kind, gpus: int) -> tuple[int, str]:
    if kind == "process":
        return 1, "your own program runs once per host unless a distribution is asked for"
    if options.processes is not None:
        return options.processes, f"{sentences.processes(options.processes)}: {options.processes_source} says so"
    if gpus:
        return gpus, f"{sentences.processes(gpus)}: one for each GPU"
    if job.program is None:
        return 1, f"{sentences.processes(1)}: no GPU, and processes_per_host is not set"
    return 1, f"{sentences.processes(1)}: no GPU, and neither distribution nor BERTH_PROCESSES_PER_HOST says how many"


def _backend(gpus: int, library: smddp.Library | None) -> tuple[Backend, str]:
    """The backend, and in a few words why. `library` is None if the job does not request SMDDP."""
    if library is not None and not library.obstacle:
        return "smddp", "smdistributed dataparallel was asked for, and its library can be imported"
    backend: Backend = "nccl" if gpus else "gloo"
    reason = f"{counted(gpus, 'GPU')} on each host" if gpus else "no GPU that torch can use"
    if library is None:
        return backend, reason
    return backend, f"{reason}; smdistributed dataparallel was asked for but can't be used ({library.obstacle})"


def _user_command(job: Job, options: LaunchOptions, findings: HostFindings) -> tuple[str, ...]:
    program, python = str(job.program), findings.launcher.python
    arguments = program_arguments(job, mp_parameters=model_parallel.taken_as_argument(findings.transformers))
    if program.endswith(".sh"):
        return ("bash", program, *arguments)
    # mpi4py's runner calls MPI_Abort when the program raises; ranks in a collective would otherwise wait for ever.
    runner = ("-m", "mpi4py") if options.mpi4py else ()
    return (python, *runner, program, *arguments)
