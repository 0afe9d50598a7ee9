"""This host's part of a job: the leader's, a worker's, or that of a host that can't take part.

The session loops decide and act through `LeaderHost` and `WorkerHost` (their LeaderActions and WorkerActions): here the
program is prepared and started, ssh's files are written, and what was begun is ended.
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
    """Where this host's entry works. Only tests, which put several hosts on one machine, have others than these."""

    root: Path = Path("/opt/ml")
    run_dir: Path = Path(RUN_FOLDER)
    port: int = rendezvous.PORT


@dataclass(frozen=True, slots=True)
class HostContext:
    """One job on this host: what does not depend on its plan. `timeout`: seconds that hosts wait for each other;
    `peer_timeout`: seconds of silence after which one of them is lost, those of the leader count for all.
    """

    job: Job
    paths: EntryPaths
    events: Events
    failure_file: FailureFile
    timeout: float
    peer_timeout: float = DEFAULT_SILENCE_SECONDS

    def finish(self, outcome: Outcome, notes: Sequence[str] = ()) -> None:
        """Write what is left of the job here, as the last thing. `notes` are for the log's last line."""
        finish(outcome, self.failure_file, self.paths.root, notes)


class _Host:
    """What the leader and a worker have in common. `keys` is the folder of ssh's files, None where no ssh is needed."""

    def __init__(self, context: HostContext, hardware: Hardware, plan: Plan, keys: Path | None) -> None:
        self.context = context
        self.job = context.job
        self.events = context.events
        self.hardware = hardware
        self.plan = plan
        self.keys = keys
        # The plan's, until the hosts have met: then with the job's port.
        self.variables = dict(plan.environment)
        self.run_here = LocalRun(context.paths.run_dir, context.events)

    @property
    def name(self) -> str:
        return self.job.current_host

    def prepare(self) -> None:
        """In a thread, for pip may take minutes and the leader or a signal must be heard meanwhile."""
        threading.Thread(target=self._prepare, name="prepare", daemon=True).start()

    def _prepare(self) -> None:
        try:
            note = prepare(self.job)
            self.run_here.folder.write_program(self._program(note))
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
            cwd=str(self.run_here.folder.work if plan.kit else job.code_dir),
            environment=passed,
            host=job.current_host,
            code_dir=str(job.code_dir),
            name="run_qa" if plan.kit else str(job.program),
            world_size=plan.world_size if ranks else 0,
            ranks_per_host=plan.ranks_per_host if ranks else 0,
            prefix_other_ranks=plan.kit,
            shell=plan.shell,
            alone=plan.world_size == 1,
            package_note=note,
        )

    def start(self) -> None:
        if self.plan.kind == "mpirun":
            if ends_on_failure(self.plan.command, {**os.environ, **self.variables}):
                self.run_here.watch_failures()
            if not self.job.leads:
                return  # the leader's mpirun comes here over ssh
        self.run_here.start(self.plan.command, {**os.environ, **self.variables})

    def stop(self) -> None:
        self.run_here.stop()

    def signal(self, number: int, count: int) -> None:
        self.run_here.signal_programs(number, count)

    def reports(self) -> list[FailureReport]:
        return self.run_here.reports()

    def launcher_output(self) -> list[str]:
        return list(self.run_here.output)

    def leaves_model(self) -> bool:
        return size(self.context.paths.root / "model").files > 0

    def finish(self, outcome: Outcome) -> None:
        events = self.run_here.folder.events()
        notes = plan_notes(self.plan, events, ended_well=outcome.code == 0)
        if outcome.code == 0 and not outcome.leaves_model:
            context = ProgramContext(self.job.code_dir)
            notes.append(empty_model_note(self.run_here.folder.failed_children(), context))
        self.context.finish(outcome, notes)


class LeaderHost(_Host):
    """The host that the others meet, and that runs mpirun."""

    def run(self) -> Outcome:
        """The whole job; JobError if no worker could reach this host."""
        try:
            leader = _listen(self.context)
            everywhere = self.plan.kind == "process"
            return LeaderLoop(leader, self, self.events, everywhere=everywhere).run(self.context.timeout)
        finally:
            self.run_here.close()

    def admit(self, leader: Leader) -> dict[str, Any]:
        """Check that the workers are like this host, choose the job's port, and write what ssh needs to reach them."""
        check_alike(self.plan.ranks_per_host, self.plan.backend, leader.introductions, self.name)
        if not os.environ.get("MASTER_PORT"):
            self.variables["MASTER_PORT"] = str(ssh.free_port(int(self.variables["MASTER_PORT"])))
        key = self._write_client_files(leader, self.keys) if self.keys else ""
        return {"host_key": "", "client_key": key, "master_port": int(self.variables["MASTER_PORT"])}

    def _write_client_files(self, leader: Leader, keys: Path) -> str:
        """ssh's files for mpirun; returns the public key of this job."""
        key = ssh.make_key(keys / "job_key")
        (keys / "known_hosts").write_text(ssh.known_hosts(leader.introductions), "utf-8")
        (keys / "ssh_config").write_text(ssh.client_config(keys, leader), "utf-8")
        return key


class WorkerHost(_Host):
    """A host that joins the leader, and whose sshd lets the leader's mpirun in."""

    def __init__(self, context: HostContext, hardware: Hardware, plan: Plan, keys: Path | None) -> None:
        super().__init__(context, hardware, plan, keys)
        self._sshd: ssh.SshServer | None = None
        self._connection: HostConnection | None = None

    def run(self) -> Outcome:
        """This host's part of the job. JobError or Stopped if it never came to meet the leader."""
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
            self.run_here.close()

    def _introduction(self) -> Introduction:
        """What this host says of itself, once its sshd runs; JobError if that does not start."""
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
        """Take the job's port, and let the leader in."""
        self.variables["MASTER_PORT"] = str(welcome["master_port"])
        if self._sshd and self._connection:
            self._sshd.allow(welcome["client_key"], self._connection.address)


class RefusedHost:
    """A host that can't take part, as `reason` says. It ends the whole job.

    The others would wait for it until their deadline. So it meets them all the same, only to say why; where they can't
    be met either, it ends alone.
    """

    def __init__(self, context: HostContext, reason: Outcome) -> None:
        self.context = context
        self.reason = reason

    def run(self) -> Outcome:
        """Returns how the job ended on every host."""
        return self._lead() if self.context.job.leads else self._join()

    def _lead(self) -> Outcome:
        self.context.finish(self.reason)
        try:
            leader = _listen(self.context)
        except JobError as error:
            get_logger().info("rendezvous: the other hosts were not told: %s", error)
        else:
            leader.dismiss(outcome_fields(self.reason, time.time()), time.monotonic() + self.context.timeout)
        return self.reason

    def _join(self) -> Outcome:
        job = self.context.job
        get_logger().info("rendezvous: this host can't take part, and joins the leader %s to say why", job.leader)
        outcome = self.reason
        connection = None
        try:
            introduction = Introduction(job.current_host, ranks=0, version=kit_version())
            connection = _join(self.context, introduction)
            outcome = self._tell(connection)
        except JobError as error:
            get_logger().info("rendezvous: the leader was not told: %s", error)
        except Stopped:
            get_logger().info("rendezvous: the leader was not told, for this host was told to stop")
        self.context.finish(outcome)
        if connection is not None:
            connection.send("bye")
            connection.close()
        return outcome

    def _tell(self, connection: HostConnection) -> Outcome:
        """Say why, and hear how the job ends; `reason` if the leader is lost, or this host is told to stop."""
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
    """What the user must not miss at the end: ranks that trained alone, by the events of this host's `ranks`, and GPUs
    that nobody used. A program that failed may have been on its way to the others.
    """
    if plan.kit or not ranks:
        return []  # run_qa checks its process group itself
    if plan.kind == "mpirun":
        notes = [alone_sentence(ranks, plan.world_size) if ended_well else ""]
    else:
        # Its program may have started a process for each GPU, such as by torchrun.
        notes = [plan.idle_gpus if largest_group(ranks) < 2 else ""]
    return [note for note in notes if note]


def empty_model_note(failed_children: Sequence[PythonEnd], context: ProgramContext) -> str:
    """That no host leaves a model, and the last exception of a process that the program started and did not heed."""
    note = "/opt/ml/model is empty, so the job leaves no model"
    if not failed_children:
        return note
    last = failed_children[-1]
    reason = exception_sentence(last.raised, context) if last.raised is not None else last.text
    return f"{note}; a process that it started failed: {reason}"


def check_alike(ranks: int, backend: str, workers: Mapping[str, Introduction], leader: str) -> None:
    """JobError if a worker has another version of the kit than the leader, or would run other ranks or backends."""
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
