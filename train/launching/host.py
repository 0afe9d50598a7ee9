"""This host's part of a job: as the leader, as a worker, or as a host that can't take part.

The loops in hosts/session.py decide, and `LeaderHost` and `WorkerHost` (their LeaderActions and WorkerActions) act:
they prepare, start and end the program, and write ssh's files.
"""

import os
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.errors import JobError
from berth.runtime.hints.program import PackageNote, ProgramContext
from berth.runtime.interfaces import interface_here
from berth.runtime.software import kit_version
from berth.train.failures.ends import PythonEnd
from berth.train.failures.failure import FailureFile, FailureReport
from berth.train.failures.sentence import exception_sentence
from berth.train.failures.start_errors import passable
from berth.train.hosts import rendezvous, ssh
from berth.train.hosts.events import Events, HostPrepared, Lost, Message, Signalled
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import Outcome, failed, finish, outcome_fields, read_outcome
from berth.train.hosts.output_sizes import size
from berth.train.hosts.rendezvous import Introduction, Leader, Stopped
from berth.train.hosts.session import LeaderLoop, WorkerLoop
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


class _Host:
    """The common part of leader and worker. `keys`: the folder of ssh's files, None if the job needs no ssh."""

    def __init__(self, context: HostContext, hardware: Hardware, plan: Plan, keys: Path | None) -> None:
        self.context = context
        self.job = context.job
        self.events = context.events
        self.hardware = hardware
        self.plan = plan
        self.keys = keys
        # The plan's variables. When the hosts have met, MASTER_PORT becomes the job's port.
        self.variables = dict(plan.environment)
        self.local_run = LocalRun(context.paths.run_dir, context.events)

    @property
    def name(self) -> str:
        return self.job.current_host

    def prepare(self) -> None:
        """Prepare in a thread: pip may take minutes, and messages and signals must be handled meanwhile."""
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
        if self.plan.kind == "mpirun":
            if ends_on_failure(self.plan.command, {**os.environ, **self.variables}):
                self.local_run.watch_failures()
            if not self.job.leads:
                return  # the leader's mpirun starts this host's ranks over ssh
        self.local_run.start(self.plan.command, {**os.environ, **self.variables})

    def stop(self) -> None:
        self.local_run.stop()

    def signal(self, number: int, count: int) -> None:
        self.local_run.signal_programs(number, count)

    def reports(self) -> list[FailureReport]:
        return self.local_run.reports()

    def launcher_output(self) -> list[str]:
        return list(self.local_run.output)

    def leaves_model(self) -> bool:
        return size(self.context.paths.root / "model").files > 0

    def finish(self, outcome: Outcome) -> None:
        events = self.local_run.folder.events()
        notes = plan_notes(self.plan, events, ended_well=outcome.code == 0)
        if outcome.code == 0 and not outcome.leaves_model:
            context = ProgramContext(self.job.code_dir)
            notes.append(empty_model_note(self.local_run.folder.failed_children(), context))
        self.context.finish(outcome, notes)


class LeaderHost(_Host):
    """The host to which the others connect, and which runs mpirun."""

    def run(self) -> Outcome:
        """Run the job. JobError if this host can't listen for the workers."""
        try:
            leader = _listen(self.context)
            everywhere = self.plan.kind == "process"
            return LeaderLoop(leader, self, self.events, everywhere=everywhere).run(self.context.timeout)
        finally:
            self.local_run.close()

    def admit(self, leader: Leader) -> dict[str, Any]:
        """Check that the workers match this host, choose the job's port, and write ssh's files; returns the welcome."""
        check_alike(self.plan.ranks_per_host, self.plan.backend, leader.introductions, self.name)
        if not os.environ.get("MASTER_PORT"):
            self.variables["MASTER_PORT"] = str(ssh.free_port(int(self.variables["MASTER_PORT"])))
        key = self._write_client_files(leader, self.keys) if self.keys else ""
        return {"host_key": "", "client_key": key, "master_port": int(self.variables["MASTER_PORT"])}

    def _write_client_files(self, leader: Leader, keys: Path) -> str:
        """Write ssh's files for mpirun; returns the job's public key."""
        key = ssh.make_key(keys / "job_key")
        (keys / "known_hosts").write_text(ssh.known_hosts(leader.introductions), "utf-8")
        (keys / "ssh_config").write_text(ssh.client_config(keys, leader), "utf-8")
        return key


class WorkerHost(_Host):
    """A host that joins the leader. Its sshd accepts the leader's mpirun."""

    def __init__(self, context: HostContext, hardware: Hardware, plan: Plan, keys: Path | None) -> None:
        super().__init__(context, hardware, plan, keys)
        self._sshd: ssh.SshServer | None = None
        self._connection: HostConnection | None = None

    def run(self) -> Outcome:
        """Run this host's part of the job. JobError or Stopped if it could not join the leader."""
        try:
            try:
                introduction = self._introduction()
            except JobError as error:
                return RefusedHost(self.context, failed(str(error), self.name)).run()
            self._connection = _join(self.context, introduction)
            return WorkerLoop(self._connection, self, self.events).run()
        finally:
            if self._sshd:
                self._sshd.stop()
            self.local_run.close()

    def _introduction(self) -> Introduction:
        """Start sshd if the job needs it, and describe this host. JobError if sshd does not start."""
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

    def accept(self, welcome: Mapping[str, Any]) -> None:
        """Take the job's port, and let the leader's ssh in."""
        self.variables["MASTER_PORT"] = str(welcome["master_port"])
        if self._sshd and self._connection:
            self._sshd.allow(welcome["client_key"], self._connection.address)


class RefusedHost:
    """A host that can't take part, because of `reason`. It ends the whole job.

    It still meets the other hosts, to report the reason: they would otherwise wait for it until their deadline. If it
    can't meet them, it ends alone.
    """

    def __init__(self, context: HostContext, reason: Outcome) -> None:
        self.context = context
        self.reason = reason

    def run(self) -> Outcome:
        """Report the reason; returns the outcome of the whole job."""
        return self._lead() if self.context.job.leads else self._join()

    def _lead(self) -> Outcome:
        self.context.finish(self.reason)
        try:
            leader = _listen(self.context)
        except JobError as error:
            get_logger().info("rendezvous: could not report this to the other hosts: %s", error)
        else:
            leader.dismiss(outcome_fields(self.reason, time.time()), time.monotonic() + self.context.timeout)
        return self.reason

    def _join(self) -> Outcome:
        job = self.context.job
        get_logger().info("rendezvous: this host can't take part; joining the leader %s to report why", job.leader)
        outcome = self.reason
        connection = None
        try:
            introduction = Introduction(job.current_host, ranks=0, version=kit_version())
            connection = _join(self.context, introduction)
            outcome = self._report(connection)
        except JobError as error:
            get_logger().info("rendezvous: could not report this to the leader: %s", error)
        except Stopped:
            get_logger().info("rendezvous: did not report this to the leader, because this host was told to stop")
        self.context.finish(outcome)
        if connection is not None:
            connection.send("bye")
            connection.close()
        return outcome

    def _report(self, connection: HostConnection) -> Outcome:
        """Send the reason and wait for the job's outcome; `reason` if the leader is lost or a signal comes first."""
        connection.send("done", **outcome_fields(self.reason, time.time()))
        while True:
            match self.context.events.get():
                case Message(kind="outcome", fields=fields):
                    return read_outcome(fields, time.time())
                case Lost() | Signalled():
                    return self.reason
                case _:
                    pass


def _listen(context: HostContext) -> Leader:
    job = context.job
    return Leader(job.leader, job.hosts[1:], context.events, context.paths.port, context.peer_timeout)


def _join(context: HostContext, introduction: Introduction) -> HostConnection:
    leader = context.job.leader
    interface = interface_here(context.job.network_interface)
    connection = rendezvous.join(leader, introduction, context.events, context.timeout, context.paths.port, interface)
    get_logger().info("rendezvous: joined the leader %s", leader)
    return connection


def plan_notes(plan: Plan, ranks: Sequence[Sequence[str]], *, ended_well: bool) -> list[str]:
    """Warnings for the last line of the log: ranks that trained alone, and idle GPUs. `ranks`: events of this host's.

    After a failure nothing is said of ranks that trained alone: they may have failed before they formed a group.
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
                f"{host} would run {worker.ranks} ranks but {leader} {ranks}; use instances of one kind, "
                "or set BERTH_PROCESSES_PER_HOST to a number that every host has GPUs for."
            )
        if worker.backend != backend:
            raise JobError(
                f"{host} would use the backend {worker.backend} but {leader} {backend}; use instances of one kind "
                "and one image, and look for the reason in the launch plan of each host's log."
            )
