"""The training image's entrypoint, `train`: reads the job, decides, meets the other hosts, runs, and ends as SageMaker
expects.

`IMAGE train` and `IMAGE` alone train. Anything else is run instead (`IMAGE bash`). This file is process 1: what it
runs, the signals that it gets, the code that it ends with. It looks and decides, and launching/host.py acts:

    job + hardware → plan → rendezvous → prepare → launch → outcome → /opt/ml/output/failure, exit code
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from berth.contract.errors import JobError
from berth.contract.launch_options import LaunchOptions, read_launch_options
from berth.runtime import config_files, software
from berth.runtime.dispatch import run_command
from berth.runtime.gpu import start
from berth.train.failures.failure import FailureFile
from berth.train.hosts import ssh
from berth.train.hosts.events import Events, Signalled
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import Outcome, failed, finish, stopped
from berth.train.hosts.rendezvous import DEFAULT_TIMEOUT_SECONDS, Stopped
from berth.train.hosts.wire import DEFAULT_SILENCE_SECONDS
from berth.train.launching.host import EntryPaths, HostContext, LeaderHost, RefusedHost, WorkerHost
from berth.train.planning import efa, smddp
from berth.train.planning.hardware import Hardware, probe
from berth.train.planning.job import Job, read_job
from berth.train.planning.mpirun import Launcher, find_mpirun, image_parameters
from berth.train.planning.plan import HostFindings, Plan, make_plan, needs_ssh


def dispatch(arguments: Sequence[str]) -> int:
    """Train, or run what was asked for instead of training."""
    root = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    return run_command(arguments, "train", lambda: train(EntryPaths(root=root)), _refusal, _not_run)


def _refusal(arguments: Sequence[str]) -> str:
    if arguments[0] == "train":
        return "train takes no arguments; pass settings as hyperparameters of the job."
    if arguments[0] == "serve":
        return (
            "this is the training image, which does not serve; deploy with the inference image: "
            'estimator.deploy(1, "ml.m5.xlarge", image_uri="…/berth-serve…"), whose URI `python build.py uri serve` '
            "prints."
        )
    return ""


def _not_run(name: str, error: OSError) -> str:
    return f"{name} can't be run in this image ({error.strerror}); use train, or a program on PATH."


def train(paths: EntryPaths) -> int:
    """Run this host's part of the job; returns the exit code, the same on every host."""
    events: Events = SimpleQueue()
    failure_file = FailureFile(paths.root / "output" / "failure")
    failure_file.keep_room()
    host = "this host"
    try:
        with contextlib.ExitStack() as stack:
            with _stoppable(events):
                job = read_job(paths.root)
                host = job.current_host
                options = read_launch_options(job.hyperparameters, job.program, os.environ)
                timeout = options.timeout or DEFAULT_TIMEOUT_SECONDS
                peer_timeout = options.peer_timeout or DEFAULT_SILENCE_SECONDS
                context = HostContext(job, paths, events, failure_file, timeout, peer_timeout)
                part = _find_part(context, options, stack)
            return part.run().code
    except Exception as error:
        outcome = _explain(error, host)
    finish(outcome, failure_file, paths.root)
    return outcome.code


def _find_part(
    context: HostContext, options: LaunchOptions, stack: contextlib.ExitStack
) -> LeaderHost | WorkerHost | RefusedHost:
    """Look at this host and decide what it does in the job. `stack` removes what is laid down for that."""
    job = context.job
    try:
        if job.leads:
            described = [software.described(found)] if (found := software.read()) else []
            for line in [*described, *config_files.notes(job.root)]:
                get_logger().info("%s", line)
        hardware = _usable_hardware()
        keys = stack.enter_context(ssh.private_folder()) if needs_ssh(job, options) else None
        plan = _decide(job, options, hardware, str(context.paths.run_dir), keys)
        get_logger().info("%s", plan.render(job.current_host))
        return (LeaderHost if job.leads else WorkerHost)(context, hardware, plan, keys)
    except Stopped:
        raise
    except Exception as error:
        return RefusedHost(context, _explain(error, job.current_host))


def _usable_hardware() -> Hardware:
    """What this host has, with the GPUs that its driver offers; JobError where torch can't run on them."""
    hardware = probe()
    # Before anything that would be left behind: with cuda-compat this process begins again.
    usable = start.check(hardware.cuda, hardware.gpus, get_logger().info)
    if usable.refusal:
        raise JobError(usable.refusal)
    return replace(hardware, gpus=usable.gpus)


def _decide(job: Job, options: LaunchOptions, hardware: Hardware, run_dir: str, keys: Path | None) -> Plan:
    """Find what launches here, try what was asked for, and make the plan."""
    path, major = find_mpirun()
    ssh_config = str(keys / "ssh_config") if keys else ""
    home = Path(os.environ.get("HOME", "/"))
    launcher = Launcher(sys.executable, path, major, run_dir, ssh_config, image_parameters(path, home))
    # Some seconds, for the library imports torch.
    library = smddp.attempt(job, os.environ) if options.smddp and not options.problems else None
    fabric = efa.detect(environ={**(efa.STRICT if options.efa else {}), **os.environ, **options.exports})
    transformers = software.installed("transformers") if job.program is None or options.model_parallel else ""
    return make_plan(job, options, HostFindings(hardware, launcher, library, fabric, transformers), os.environ)


def _explain(error: Exception, host: str) -> Outcome:
    """How a job ends by an error of this process."""
    if isinstance(error, JobError):
        return failed(str(error), host)
    if isinstance(error, Stopped):
        return stopped(error.number)
    # The kit's own fault: still a sentence, an exit code and a failure file.
    get_logger().error("%s", traceback.format_exc())
    return failed(
        f"the image's train entry failed ({type(error).__name__}: {error}); please report it with this log.", host
    )


@contextlib.contextmanager
def _stoppable(events: Events) -> Iterator[None]:
    """In this block a signal ends what is being waited for, by Stopped; after it, signals become events.

    Nobody reads the events yet, and what looks at a host (its driver, SMDDP, EFA) may take longer than the 120 s that
    SageMaker leaves between SIGTERM and SIGKILL.
    """

    def queue(number: int, _frame: FrameType | None) -> None:
        events.put(Signalled(number))

    def stop(number: int, _frame: FrameType | None) -> None:
        # From now on signals are only queued, so that a second one can't interrupt the cleanup. Queue this one as well:
        # a library may swallow the exception.
        listen(queue)
        events.put(Signalled(number))
        raise Stopped(number)

    def listen(handler: Callable[[int, FrameType | None], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handler)

    listen(stop)
    start.unblock_signals()
    try:
        yield
    finally:
        listen(queue)
