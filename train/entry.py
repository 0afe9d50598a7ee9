"""The training image's entrypoint, `train`: reads the job, plans it, meets the other hosts, runs it, and reports how it
ended in the form that SageMaker expects.

`IMAGE train` and `IMAGE` alone train. Any other command runs instead (`IMAGE bash`). This is process 1 of the
container, so this file handles the signals and the exit code. It inspects the host and makes the plan;
launching/session.py carries it out:

    job + hardware → plan → rendezvous → prepare → launch → outcome → /opt/ml/output/failure, exit code
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
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
from berth.train.launching.host import EntryPaths, Host, HostContext
from berth.train.launching.refusal import report_refusal
from berth.train.launching.session import follow, lead
from berth.train.planning import efa, smddp
from berth.train.planning.hardware import Hardware, probe
from berth.train.planning.job import Job, read_job
from berth.train.planning.mpirun import Launcher, find_mpirun, image_parameters
from berth.train.planning.plan import HostFindings, Plan, make_plan, needs_ssh


def dispatch(arguments: Sequence[str]) -> int:
    """Train, or run another command instead."""
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
                run = _find_part(context, options, stack)
            return run().code
    except Exception as error:
        outcome = _explain(error, host)
    finish(outcome, failure_file, paths.root)
    return outcome.code


def _find_part(context: HostContext, options: LaunchOptions, stack: contextlib.ExitStack) -> Callable[[], Outcome]:
    """Inspect this host and make the plan; returns a function that runs this host's part of the job.

    `stack` removes the folder of ssh keys.
    """
    job = context.job
    try:
        if job.leads:
            record = software.read()
            for line in (software.described(record) if record else "", config_files.checkpoint_note(job.root)):
                if line:
                    get_logger().info("%s", line)
        hardware = _usable_hardware()
        keys = stack.enter_context(ssh.private_folder()) if needs_ssh(job, options) else None
        plan = _plan_job(job, options, hardware, str(context.paths.run_dir), keys)
        get_logger().info("%s", plan.render(job.current_host))
        return partial(lead if job.leads else follow, Host(context, hardware, plan, keys))
    except Stopped:
        raise
    except Exception as error:
        return partial(report_refusal, context, _explain(error, job.current_host))


def _usable_hardware() -> Hardware:
    """This host's hardware, with the GPUs that its driver offers. JobError if torch can't run on them."""
    hardware = probe()
    # Call this before creating anything that needs cleanup: if cuda-compat helps, this process re-executes itself.
    usable = start.check(hardware.cuda, hardware.gpus, get_logger().info)
    if usable.refusal:
        raise JobError(usable.refusal)
    return replace(hardware, gpus=usable.gpus)


def _plan_job(job: Job, options: LaunchOptions, hardware: Hardware, run_dir: str, keys: Path | None) -> Plan:
    """Find mpirun, try SMDDP if the job requests it, look for EFA, and make the plan."""
    path, major = find_mpirun()
    ssh_config = str(keys / "ssh_config") if keys else ""
    home = Path(os.environ.get("HOME", "/"))
    launcher = Launcher(sys.executable, path, major, run_dir, ssh_config, image_parameters(path, home))
    # This takes some seconds: the library imports torch.
    library = smddp.attempt(job, os.environ) if options.smddp and not options.problems else None
    fabric = efa.detect(environ={**(efa.STRICT if options.efa else {}), **os.environ, **options.exports})
    transformers = software.installed("transformers") if job.program is None or options.model_parallel else ""
    return make_plan(job, options, HostFindings(hardware, launcher, library, fabric, transformers), os.environ)


def _explain(error: Exception, host: str) -> Outcome:
    """The outcome of a job that fails or stops with `error` in this process."""
    if isinstance(error, JobError):
        return failed(str(error), host)
    if isinstance(error, Stopped):
        return stopped(error.number)
    # A bug in berth: still report a sentence, an exit code and a failure file.
    get_logger().error("%s", traceback.format_exc())
    return failed(
        f"the image's train entry failed ({type(error).__name__}: {error}); please report it with this log.", host
    )


@contextlib.contextmanager
def _stoppable(events: Events) -> Iterator[None]:
    """In this block the first signal raises Stopped, which interrupts any wait. After the block, signals become events.

    Nothing reads the events yet in this block, and checking the driver, SMDDP and EFA may take longer than the 120 s
    that SageMaker leaves between SIGTERM and SIGKILL.
    """

    def queue(number: int, _frame: FrameType | None) -> None:
        events.put(Signalled(number))

    def stop(number: int, _frame: FrameType | None) -> None:
        # From now on signals are only queued, so a second one can't interrupt the cleanup. Queue this one as well: a
        # library may swallow the exception.
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
