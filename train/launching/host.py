"""This host in a job: prepares, starts and ends its program, checks the workers, and writes ssh's files.

The loops in launching/session.py decide when.
"""

import os
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError
from berth.contract.words import counted
from berth.runtime.hints.program import PackageNote, ProgramContext
from berth.runtime.interfaces import existing_interface
from berth.runtime.software import kit_version
from berth.train.failures.ends import PythonEnd
from berth.train.failures.failure import FailureFile
from berth.train.failures.sentence import exception_sentence
from berth.train.failures.start_errors import passable
from berth.train.hosts import rendezvous, ssh
from berth.train.hosts.events import Events, HostPrepared
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import Outcome, finish
from berth.train.hosts.output_sizes import sizes
from berth.train.hosts.rendezvous import Introduction, Leader
from berth.train.hosts.wire import DEFAULT_SILENCE_SECONDS, HostConnection
from berth.train.launching.environment import host_environment
from berth.train.launching.launch import LocalRun
from berth.train.launching.prepare import is_package, prepare
from berth.train.launching.runfolder import RUN_FOLDER, Program
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job
from berth.train.planning.mpirun import ends_on_failure
from berth.train.planning.plan import Plan
from berth.train.startup.rank_events import alone_sentence, largest_group


@dataclass(frozen=True, slots=True)
class EntryPaths:
    """The folders and the port of this host's entry. Only tests, with several hosts on one machine, change them."""

    root: Path = Path("/opt/ml")
    run_dir: Path = Path(RUN_FOLDER)
    port: int = rendezvous.PORT


@dataclass(frozen=True, slots=True)
class HostContext:
    """What this host knows of its job before it has a plan.

    timeout: seconds that the hosts wait for each other. peer_timeout: seconds of silence after which a host counts as
    lost; the leader's value applies to all hosts.
    """

    job: Job
    paths: EntryPaths
    events: Events
    failure_file: FailureFile
    timeout: float
    peer_timeout: float = DEFAULT_SILENCE_SECONDS

    def finish(self, outcome: Outcome, notes: Sequence[str] = ()) -> None:
        """Write the last log lines and the failure file, and hand over outputs. `notes`: for the log's last line."""
        finish(outcome, self.failure_file, self.paths.root, notes)

    def listen(self) -> Leader:
        """Listen for the workers. JobError if the port is taken."""
        job = self.job
        return Leader(job.leader, job.hosts[1:], self.events, self.paths.port, self.peer_timeout)

    def join(self, introduction: Introduction) -> HostConnection:
        """Join the leader. JobError or Stopped if that fails."""
        leader = self.job.leader
        interface = existing_interface(self.job.network_interface)
        connection = rendezvous.join(leader, introduction, self.events, self.timeout, self.paths.port, interface)
        get_logger().info("rendezvous: joined the leader %s", leader)
        return connection


class Host:
    """A host with a plan. `keys`: the folder of ssh's files, None if the job needs no ssh."""

    def __init__(self, context: HostContext, hardware: Hardware, plan: Plan, keys: Path | None) -> None:
        self.context = context
        self.job = context.job
        self.name = context.job.current_host
        self.events = context.events
        self.hardware = hardware
        self.plan = plan
        self.keys = keys
        # The plan's variables. When the hosts have met, MASTER_PORT becomes the job's port.
        self.variables = dict(plan.environment)
        self.local_run = LocalRun(context.paths.run_dir, context.events)
        self._sshd: ssh.SshServer | None = None

    def prepare(self) -> None:
        """Fetch the program and install its packages. HostPrepared follows, also if that fails.

        Runs in a thread: pip may take minutes, and messages and signals must be handled meanwhile.
        """
        threading.Thread(target=self._prepare, name="prepare", daemon=True).start()

    def _prepare(self) -> None:
        try:
            note = prepare(self.job)
            self.local_run.folder.write_program(self._program(note))
            self.events.put(HostPrepared(None))
        except JobError as error:
            self.events.put(HostPrepared(str(error)))
        except Exception as error:
            get_logger().error("%s", traceback.format_exc())
            problem = f"{type(error).__name__}: {error}"
            self.events.put(HostPrepared(f"the job could not be prepared ({problem}); please report it with this log."))

    def _program(self, note: PackageNote | None) -> Program:
        job, plan = self.job, self.plan
        ranks = plan.kind == "mpirun"
        environment = host_environment(job, self.hardware, plan.backend, self.variables, os.environ)
        passed, warning = passable(environment)
        if warning:
            get_logger().warning("%s", warning)
        return Program(
            command=plan.module_program if is_package(job) else plan.program,
            cwd=str(self.local_run.folder.work if plan.is_run_qa else job.code_dir),
            environment=passed,
            host=job.current_host,
            code_dir=str(job.code_dir),
            name="run_qa" if plan.is_run_qa else str(job.program),
            world_size=plan.world_size if ranks else 0,
            ranks_per_host=plan.ranks_per_host if ranks else 0,
            prefix_other_ranks=plan.is_run_qa,
            shell=plan.shell,
            alone=plan.world_size == 1,
            package_note=note,
        )

    def start(self) -> None:
        """Start the plan's command, if it has one for this host. Exited follows when the command ends."""
        if self.plan.kind == "mpirun":
            if ends_on_failure(self.plan.command, {**os.environ, **self.variables}):
                self.local_run.watch_failures()
            if not self.job.leads:
                return  # the leader's mpirun starts this host's ranks over ssh
        self.local_run.start(self.plan.command, {**os.environ, **self.variables})

    def leaves_model(self) -> bool:
        """Whether this host's model folder contains a file."""
        return any(True for _ in sizes(self.context.paths.root / "model"))

    def finish(self, outcome: Outcome) -> None:
        """Write the last log lines and the failure file, and hand over the outputs."""
        events = self.local_run.folder.events()
        notes = plan_notes(self.plan, events, ended_well=outcome.code == 0)
        if outcome.code == 0 and not outcome.leaves_model:
            context = ProgramContext(self.job.code_dir)
            notes.append(empty_model_note(self.local_run.folder.failed_children(), context))
        self.context.finish(outcome, notes)

    def admit(self, leader: Leader) -> dict[str, Any]:
        """On the leader: check the workers, choose the job's port, and write ssh's files; returns the welcome."""
        check_alike(self.plan.ranks_per_host, self.plan.backend, leader.introductions, self.name)
        if not os.environ.get("MASTER_PORT"):
            self.variables["MASTER_PORT"] = str(ssh.free_port(int(self.variables["MASTER_PORT"])))
        key = ssh.write_client_files(self.keys, leader) if self.keys else ""
        return {"host_key": "", "client_key": key, "master_port": int(self.variables["MASTER_PORT"])}

    def introduction(self) -> Introduction:
        """On a worker: start sshd if the job needs it, and describe this host. JobError if sshd does not start."""
        if self.keys:
            self._sshd = ssh.SshServer(self.keys)
            self._sshd.start()
        return Introduction(
            host=self.name,
            ranks=self.plan.ranks_per_host,
            backend=self.plan.backend,
            host_key=self._sshd.host_key if self._sshd else "",
            ssh_port=self._sshd.port if self._sshd else 0,
            version=kit_version(),
        )

    def accept(self, welcome: Mapping[str, Any], address: str) -> None:
        """On a worker: use the job's port, and accept the leader's ssh key from its `address`."""
        self.variables["MASTER_PORT"] = str(welcome["master_port"])
        if self._sshd:
            self._sshd.allow(welcome["client_key"], address)

    def close(self) -> None:
        """End this host's sshd and forward the last output."""
        if self._sshd:
            self._sshd.stop()
        self.local_run.close()


def plan_notes(plan: Plan, ranks: Sequence[Sequence[str]], *, ended_well: bool) -> list[str]:
    """Warnings for the last line of the log: ranks that trained alone, and idle GPUs. `ranks`: events of this host's.

    After a failure, ranks without a group are not reported: they may have failed before they formed one.
    """
    if plan.is_run_qa or not ranks:
        return []  # run_qa checks its process group itself
    if plan.kind == "mpirun":
        notes = [alone_sentence(ranks, plan.world_size) if ended_well else ""]
    else:
        # The program may have started a process per GPU itself, for example with torchrun.
        notes = [plan.idle_gpus if largest_group(ranks) < 2 else ""]
    return [note for note in notes if note]


def empty_model_note(failed_children: Sequence[PythonEnd], context: ProgramContext) -> str:
    """Warns that no host leaves a model, with the last error of a child process that the program ignored."""
    note = "/opt/ml/model is empty, so the job leaves no model"
    if not failed_children:
        return note
    last = failed_children[-1]
    reason = exception_sentence(last.raised, context) if last.raised is not None else last.text
    return f"{note}; a process that the program started failed: {reason}"


def check_alike(ranks: int, backend: str, workers: Mapping[str, Introduction], leader: str) -> None:
    """JobError if a worker's version of berth, number of ranks or backend differs from the leader's."""
    for host, worker in workers.items():
        if worker.version != kit_version():
            raise JobError(
                f"{host} has version {worker.version} of the kit but {leader} {kit_version()}; give all "
                "hosts one image."
            )
        if worker.ranks != ranks:
            raise JobError(
                f"{host} would run {counted(worker.ranks, 'rank')} but {leader} {ranks}; use instances of one kind, "
                "or set BERTH_PROCESSES_PER_HOST to a number that every host has GPUs for."
            )
        if worker.backend != backend:
            raise JobError(
                f"{host} would use the backend {worker.backend} but {leader} {backend}; use instances of one kind "
                "and one image, and look for the reason in the launch plan of each host's log."
            )
