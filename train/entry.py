"""The training image's entrypoint, `train`: reads the job, decides, meets the other hosts, runs, and ends as SageMaker
expects.

`IMAGE train` and `IMAGE` alone train. Anything else is run instead (`IMAGE bash`). This file only puts the parts
together:

    job + hardware → plan → rendezvous → prepare → launch → outcome → /opt/ml/output/failure, exit code
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from berth.contract.errors import JobError
from berth.contract.launch_options import read_launch_options, read_timeout
from berth.runtime.dispatch import OwnCommand, run_command
from berth.runtime.gpu import start as gpu_start
from berth.train import efa, smddp
from berth.train.failure import FailureFile
from berth.train.hardware import Hardware, probe
from berth.train.hosts import rendezvous, ssh
from berth.train.hosts.events import Events, Prepared, Signalled
from berth.train.hosts.rendezvous import Introduction, Leader
from berth.train.hosts.session import LeaderLoop, Local, Outcome, WorkerLoop, failed, stopped
from berth.train.job import Job, read_job, sagemaker_variables
from berth.train.launch import LocalRun
from berth.train.log import get_logger
from berth.train.mpirun import Launcher, find_mpirun
from berth.train.ownership import hand_over
from berth.train.plan import Plan, make_plan
from berth.train.prepare import prepare
from berth.train.runfolder import RUN_FOLDER, Program


@dataclass(frozen=True, slots=True)
class EntryPaths:
    """Where this host's entry works. Only tests, which put several hosts on one machine, have others than these."""

    root: Path = Path("/opt/ml")
    run_dir: Path = Path(RUN_FOLDER)
    port: int = rendezvous.PORT


def main() -> int:
    """The console script `train`."""
    return dispatch(sys.argv[1:])


def dispatch(arguments: Sequence[str]) -> int:
    """Train, or run what was asked for instead of training."""
    root = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    return run_command(arguments, OwnCommand("train", lambda: train(EntryPaths(root=root)), _refusal, _not_run))


def _refusal(arguments: Sequence[str]) -> str:
    if arguments[0] == "train":
        return "train takes no arguments; pass settings as hyperparameters of the job."
    if arguments[0] == "serve":
        return "this is the training image, it does not serve; use the inference image (berth-serve)."
    return ""


def _not_run(name: str, error: OSError) -> str:
    return f"{name} can't be run in this image ({error.strerror}); use train, or a program on PATH."


def train(places: EntryPaths) -> int:
    """Run this host's part of the job; returns the exit code, the same on every host."""
    events: Events = SimpleQueue()
    failure_file = FailureFile(places.root / "output" / "failure")
    host = "this host"
    keys: Path | None = None
    try:
        with _stoppable(events):
            job = read_job(places.root)
            host = job.current_host
            timeout = read_timeout(os.environ) or rendezvous.TIMEOUT_SECONDS
            hardware = probe()
            # Before anything that would be left behind: with cuda-compat this process begins anew.
            usable = gpu_start.check(hardware.cuda, hardware.gpus, get_logger().info)
            if usable.refusal:
                raise JobError(usable.refusal)
            hardware = replace(hardware, gpus=usable.gpus)
            keys = ssh.private_folder()
            path, major = find_mpirun()
            launcher = Launcher(sys.executable, path, major, str(places.run_dir), str(keys / "ssh_config"))
            asked = read_launch_options(job.hyperparameters, job.program, os.environ)
            # Some seconds, for the library imports torch.
            library = smddp.attempt(job, os.environ) if asked.smddp and not asked.problems else None
            fabric = efa.look(environ={**os.environ, **(efa.STRICT if asked.efa else {})})
            plan = make_plan(job, hardware, os.environ, launcher, library, fabric)
            get_logger().info("%s", plan.render(job.current_host))
        return _Host(places, job, hardware, plan, keys, events, failure_file).run(timeout).code
    except JobError as error:
        outcome = failed(str(error), host)
    except rendezvous.Stopped as error:
        outcome = stopped(error.number)
    except Exception as error:  # the kit's own fault: still a sentence, an exit code and a failure file
        get_logger().error("%s", traceback.format_exc())
        outcome = failed(
            f"the image's train entry failed ({type(error).__name__}: {error}); please report it with this log.", host
        )
    finally:
        if keys is not None:
            shutil.rmtree(keys, ignore_errors=True)
    finish(outcome, failure_file, places.root)
    return outcome.code


@contextlib.contextmanager
def _stoppable(events: Events) -> Iterator[None]:
    """In this block a signal ends what is being waited for, by rendezvous.Stopped; after it, signals become events.

    Nobody reads the events yet, and what looks at a host (its driver, SMDDP, EFA) may take longer than the 120 s that
    SageMaker leaves between SIGTERM and SIGKILL.
    """

    def queue(number: int, _frame: FrameType | None) -> None:
        events.put(Signalled(number))

    def stop(number: int, _frame: FrameType | None) -> None:
        # Once only: what ends now must not be ended itself. As an event too, for a library may swallow the exception.
        listen(queue)
        events.put(Signalled(number))
        raise rendezvous.Stopped(number)

    def listen(handler: Callable[[int, FrameType | None], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handler)

    listen(stop)
    gpu_start.unblock_signals()
    try:
        yield
    finally:
        listen(queue)


def finish(outcome: Outcome, failure_file: FailureFile, root: Path) -> None:
    """Say how the job ended, in the log and in the failure file, and hand the outputs over."""
    if outcome.code and outcome.report is not None:
        get_logger().error("failed: %s", outcome.report.sentence)
        try:
            if not failure_file.write(outcome.report):
                get_logger().info("the program wrote its own %s; it stays as it is", failure_file.path)
        except OSError as error:
            get_logger().error("%s can't be written (%s)", failure_file.path, error.strerror)
    owner = hand_over(root)
    if owner is not None:
        get_logger().info("outputs: handed to the owner of the mounted folders, uid %d", owner)
    get_logger().info("the job ends with exit code %d", outcome.code)


class _Host:
    """This host's part of one job: what the session loops act through."""

    def __init__(
        self,
        places: EntryPaths,
        job: Job,
        hardware: Hardware,
        plan: Plan,
        keys: Path,
        events: Events,
        failure_file: FailureFile,
    ) -> None:
        self.places = places
        self.job = job
        self.hardware = hardware
        self.plan = plan
        self.keys = keys
        self.events = events
        self.failure_file = failure_file
        self.master_port = plan.environment["MASTER_PORT"]
        self.run_here = LocalRun(places.run_dir, events)
        self.local = Local(
            host=job.current_host,
            prepare=self._prepare,
            start=self._start,
            stop=self.run_here.stop,
            signal=self.run_here.signal_programs,
            reports=self.run_here.reports,
            launcher_said=lambda: list(self.run_here.said),
            finish=self._finish,
        )
        self.ssh_needed = plan.kind == "mpirun" and len(plan.hosts) > 1

    def run(self, timeout: float) -> Outcome:
        try:
            return self._lead(timeout) if self.job.leads else self._follow(timeout)
        finally:
            self.run_here.close()

    def _lead(self, timeout: float) -> Outcome:
        leader = Leader(self.job.leader, self.job.hosts[1:], self.events, self.places.port)
        everywhere = self.plan.kind == "process"

        def gather() -> None:
            leader.gather(timeout)
            check_alike(self.plan.ranks_per_host, self.plan.backend, leader.introductions, self.job.leader)
            if not os.environ.get("MASTER_PORT"):
                self.master_port = str(free_port(int(self.master_port)))
            key = self._write_client_files(leader) if self.ssh_needed else ""
            leader.broadcast("welcome", key=key, master_port=self.master_port)

        return LeaderLoop(leader, self.local, self.events, everywhere).run(gather)

    def _write_client_files(self, leader: Leader) -> str:
        key = ssh.make_key(self.keys / "job_key")
        addresses = {host: connection.address for host, connection in leader.connections.items()}
        (self.keys / "known_hosts").write_text(ssh.known_hosts(leader.introductions), "utf-8")
        (self.keys / "ssh_config").write_text(ssh.client_config(self.keys, leader.introductions, addresses), "utf-8")
        return key

    def _follow(self, timeout: float) -> Outcome:
        host = self.job.current_host
        server = ssh.Server(self.keys) if self.ssh_needed else None
        try:
            if server:
                server.start()
            introduction = Introduction(
                host=host,
                ranks=self.plan.ranks_per_host,
                backend=self.plan.backend,
                host_key=server.host_key if server else "",
                ssh_port=server.port if server else 0,
                version=rendezvous.kit_version(),
            )
            connection = rendezvous.join(self.job.leader, introduction, self.events, timeout, self.places.port)
            get_logger().info("rendezvous: joined the leader %s", self.job.leader)

            def welcome(fields: Mapping[str, str]) -> None:
                self.master_port = str(int(fields["master_port"]))
                if server:
                    server.allow(str(fields["key"]).partition("\n")[0], connection.address)

            return WorkerLoop(connection, self.local, self.events).run(welcome)
        except JobError as error:
            outcome = failed(str(error), host)
        except rendezvous.Stopped as error:
            outcome = stopped(error.number)
        finally:
            if server:
                server.stop()
        self._finish(outcome)
        return outcome

    def _prepare(self) -> None:
        """In a thread, for pip may take minutes and the leader or a signal must be heard meanwhile."""
        threading.Thread(target=self._prepare_now, name="prepare", daemon=True).start()

    def _prepare_now(self) -> None:
        try:
            prepare(self.job)
            self.run_here.folder.write_program(self._program())
            self.events.put(Prepared(None))
        except JobError as error:
            self.events.put(Prepared(str(error)))
        except Exception as error:
            get_logger().error("%s", traceback.format_exc())
            self.events.put(
                Prepared(
                    f"the job could not be prepared ({type(error).__name__}: {error}); please report it with this log."
                )
            )

    def _program(self) -> Program:
        job, plan = self.job, self.plan
        environment = {
            **os.environ,
            **sagemaker_variables(job, self.hardware),
            **plan.environment,
            "MASTER_PORT": self.master_port,
        }
        # run_qa starts its process group by BERTH_BACKEND alone; transformers' own way there would miss its checks.
        smddp_seen = plan.backend == "smddp" and not plan.kit
        environment["SM_FRAMEWORK_PARAMS"] = smddp.framework_parameters(
            environment.get("SM_FRAMEWORK_PARAMS", ""), smddp_seen
        )
        if not plan.kit:
            # As sagemaker-training does: a program in a subfolder may import modules from the top of its source.
            path = [str(job.code_dir), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = ":".join(part for part in path if part)
        ranks = plan.kind == "mpirun"
        return Program(
            command=plan.program,
            cwd=str(self.run_here.folder.work if plan.kit else job.code_dir),
            environment=environment,
            host=job.current_host,
            code_dir=str(job.code_dir),
            name="run_qa" if plan.kit else str(job.program),
            world_size=plan.world_size if ranks else 0,
            ranks_per_host=plan.ranks_per_host if ranks else 0,
            prefix_other_ranks=plan.kit,
            shell=plan.shell,
            alone=plan.world_size == 1,
        )

    def _start(self) -> None:
        if self.plan.kind == "mpirun" and not self.job.leads:
            return  # the leader's mpirun comes here over ssh
        environment = {**os.environ, **self.plan.environment, "MASTER_PORT": self.master_port}
        self.run_here.start(self.plan.command, environment)

    def _finish(self, outcome: Outcome) -> None:
        finish(outcome, self.failure_file, self.places.root)


def check_alike(ranks: int, backend: str, workers: Mapping[str, Introduction], leader: str) -> None:
    """JobError if a worker has another version of the kit than the leader, or would run other ranks or backends."""
    for host, worker in workers.items():
        if worker.version != rendezvous.kit_version():
            raise JobError(
                f"{host} has version {worker.version} of the kit but {leader} {rendezvous.kit_version()}; give all "
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


def free_port(preferred: int) -> int:
    """`preferred` if nobody listens there, else a free one."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise JobError("no TCP port is free on the leader; end what holds them.")


if __name__ == "__main__":
    sys.exit(main())
