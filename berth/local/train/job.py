"""A training job on this machine: N hosts with a private network, their /opt/ml and logs, and model.tar.gz.

Like SageMaker, `run_training_job` prepares /opt/ml, starts containers, follows their logs and collects the results. It
leaves only the output folder behind.
"""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from docker.errors import DockerException
from docker.models.containers import Container
from requests.exceptions import RequestException

from berth.common.concurrency import run_all
from berth.common.engine import connect
from berth.common.errors import Problems, UserError
from berth.contract.own_program import find_program
from berth.contract.words import counted
from berth.local import archive, opt_ml, results
from berth.local.chown import FolderSnapshot, chown_new_files
from berth.local.cleanup import CALLS_AT_ONCE
from berth.local.links import without_links
from berth.local.log_stream import LogFollower
from berth.local.output_folders import check_writable, held, make_folder
from berth.local.paths import refuse_address
from berth.local.pip_secrets import write_pip_secrets
from berth.local.session import SHM_SIZE, ContainerSpec, RunSession, bind, engine_errors, require_gpus
from berth.local.signals import Interrupted, Interrupts
from berth.local.train import artifacts, checks
from berth.local.train.host_states import first_failed, read_failures, read_state
from berth.local.train.job_log import JobLog

_TIMED_OUT = 124
_POLL_SECONDS = 0.25
_STOP_GRACE = 120.0  # as on SageMaker, so that a stopped job can save its state
_LOGS_GRACE = 10.0
# After one host has failed, the others have so long to end by themselves: berth's entry takes about a second, but a
# user's own program may wait for its peers for ever.
_PEERS_GRACE = 30.0
_FROM_HUB = (
    "For a model on the hub leave --model out and pass `-p model_name_or_path={name}`, if the hub can be reached."
)


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """How a job ended.

    exit_code: of the host that failed first, 0 if none failed, 124 at the time limit; reason: that host's, in one line;
    failures: each failed host's reason (the text of /opt/ml/output/failure, and what the engine knows). Archives and
    checkpoints are None if the job left none.
    """

    exit_code: int
    seconds: float
    model_archive: Path | None = None
    output_archive: Path | None = None
    checkpoints: Path | None = None
    failures: dict[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """The arguments of a job.

    channels: name → file or folder (opt_ml.find_channels finds those in a folder); only a program that needs no data
    may have none. model: a folder or model.tar.gz, becomes the channel `model`. code: the user's source folder, copied
    to /opt/ml/code; if it requires packages, pip gets this machine's CA and indexes. The program is named by the
    hyperparameter sagemaker_program, or by SAGEMAKER_PROGRAM in environment, which includes the image's. checkpoints:
    the user's folder that all hosts see as /opt/ml/checkpoints; without it checkpoints are kept (in `output`) only if
    the job fails or is stopped. timeout: seconds.
    """

    channels: Mapping[str, Path]
    output: Path
    hosts: int = 1
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    model: Path | None = None
    code: Path | None = None
    checkpoints: Path | None = None
    gpus: bool = False
    timeout: float | None = None

    @property
    def program(self) -> str | None:
        """The user's own program; None if the job runs run_qa."""
        return find_program(self.hyperparameters, self.environment)

    @property
    def all_hyperparameters(self) -> dict[str, str]:
        """The hyperparameters, plus the paths of the code and of run_qa's model in a container."""
        qa_model = self.model is not None and self.program is None
        return opt_ml.add_paths(self.hyperparameters, qa_model=qa_model, has_code=self.code is not None)

    @property
    def folders(self) -> list[Path]:
        """The user's folders that the job writes to."""
        return [self.output] if self.checkpoints is None else [self.output, self.checkpoints]


Watch = Callable[[Interrupts], None]
"""Called with the signals that stop the job."""


def run_training_job(
    job: TrainingJob,
    *,
    image: str,
    log: Callable[[str], None] = print,
    say: Callable[[str], None] = print,
    watch: Watch = lambda interrupts: None,
) -> TrainOutcome:
    """Runs a job in containers of `image`; writes model.tar.gz into the job's `output`, owned by the caller.

    log: prints the containers' lines, which are also written to `output` (train.log); say: prints ours; watch: called
    once, before the containers start.

    Raises UserError before any container starts if the input is invalid. After a signal it removes everything that it
    started, and raises Interrupted.
    """
    job = _check(job)
    with engine_errors():
        client = connect()
        if job.gpus:
            require_gpus(client)
        engine = client.info()
        least_mb = checks.RUN_QA_MB if job.program is None else checks.OWN_PROGRAM_MB
        processes = checks.processes_per_host(job.all_hyperparameters, job.environment)
        checks.check_memory(job.hosts, processes, least_mb, checks.available_mb(engine["MemTotal"] / 1e6))
        if job.hosts > 1:
            # The hosts share this machine's cores; on SageMaker each has its own.
            cores = int(engine["NCPU"])
            if job.hosts > cores:
                say(f"warning: {job.hosts} hosts share {counted(cores, 'core')} here, so the job will be slow.")
            share = {"OMP_NUM_THREADS": str(max(1, cores // job.hosts))}
            job = replace(job, environment={**share, **job.environment})
        with RunSession(client, image, say=say, stop_grace=_STOP_GRACE) as session:
            job = replace(job, channels=_all_channels(session, job))
            for folder in job.folders:
                make_folder(folder)
            return _run(session, job, log, watch)


def check_job(job: TrainingJob, problems: Problems) -> None:
    """Notes problems that can be found without an engine, except for those of the channels' files."""
    with problems.noted():
        opt_ml.host_names(job.hosts)
    if job.model is not None:
        with problems.noted():
            archive.check_model(job.model, _FROM_HUB if job.program is None else "")
        if opt_ml.MODEL_CHANNEL in job.channels:
            problems.add(
                "the data has a channel model, which --model also makes: rename that folder or leave --model out."
            )
    if job.code is not None:
        with problems.noted():
            _check_code(job.code)
    for folder in job.folders:
        with problems.noted():
            check_writable(folder)


def _check_code(code: Path) -> None:
    refuse_address(code)
    if code.is_file():
        raise UserError(
            f"{code} is a file: pass its folder and its name, `--code {code.parent} --entry-point {code.name}`."
        )
    if not code.is_dir():
        raise UserError(f"there is no folder {code}: pass the folder that holds your program.")


def _check(job: TrainingJob) -> TrainingJob:
    """The job with absolute output folders; UserError if its input is invalid."""
    problems = Problems()
    check_job(job, problems)
    if job.channels or job.program is None:
        with problems.noted():
            opt_ml.check_channels(job.channels)
    problems.refuse()
    checkpoints = None if job.checkpoints is None else job.checkpoints.absolute()
    return replace(job, output=job.output.absolute(), checkpoints=checkpoints)


@dataclass(frozen=True, slots=True)
class _Running:
    """A job with its containers. containers: by host, in order; checkpoints: their folder's state before the job."""

    session: RunSession
    job: TrainingJob
    containers: Mapping[str, Container]
    checkpoints: FolderSnapshot
    log: JobLog


def _run(session: RunSession, job: TrainingJob, log: Callable[[str], None], watch: Watch) -> TrainOutcome:
    """The whole job inside its session."""
    checkpoints = session.scratch / "checkpoints" if job.checkpoints is None else job.checkpoints
    checkpoints.mkdir(exist_ok=True)
    before = FolderSnapshot.take(checkpoints)
    with held(job.output), JobLog(job.output, log, session.interrupts) as job_log:
        containers = _create_hosts(session, job, checkpoints)
        watch(session.interrupts)
        return _carry_out(_Running(session, job, containers, before, job_log))


def _all_channels(session: RunSession, job: TrainingJob) -> dict[str, Path]:
    """The job's channels and the model's; UserError if that is not a model. Copies folders with links out of them."""
    channels = dict(job.channels)
    if job.model is not None:
        folder = archive.model_folder(job.model, session.scratch)
        tokenizer = job.program is None and "tokenizer_name" not in job.hyperparameters
        channels[opt_ml.MODEL_CHANNEL] = archive.model_home(folder, job.model, tokenizer=tokenizer)
    for name in sorted(channels):
        folder = channels[name]
        channels[name] = without_links(folder, session.scratch / "channels" / name)
        source = job.channels.get(name, job.model)
        copied = ", copied because links lead out of it" if channels[name] != folder else ""
        session.say(f"Channel {name}: {len(opt_ml.channel_files(channels[name]))} file(s) from {source}{copied}")
    return channels


def _create_hosts(session: RunSession, job: TrainingJob, checkpoints: Path) -> dict[str, Container]:
    """Creates each host's /opt/ml and its container; checkpoints: the folder that the hosts share."""
    secrets = write_pip_secrets(job.code, job.environment, session.scratch, os.environ)
    hosts = opt_ml.host_names(job.hosts)

    def create(name: str) -> Container:
        root = session.scratch / name
        writable = {
            **opt_ml.host_mounts(root, has_code=job.code is not None),
            f"{opt_ml.ROOT}/checkpoints": checkpoints,
        }
        read_only = {**opt_ml.channel_mounts(job.channels), **secrets.mounts}
        config = opt_ml.HostConfig(
            host=name,
            hosts=hosts,
            instance_type="local_gpu" if job.gpus else "local",
            hyperparameters=job.all_hyperparameters,
            channels=job.channels,
            code=job.code,
        )
        opt_ml.create_host_folder(root, config)
        spec = ContainerSpec(
            name,
            command=["train"],
            mounts=[
                *(bind(target, source) for target, source in writable.items()),
                *(bind(target, source, read_only=True) for target, source in read_only.items()),
            ],
            environment={"TRAINING_JOB_NAME": f"berth-{session.run_id}", **secrets.environment, **job.environment},
            gpus=job.gpus,
            shm_size=SHM_SIZE,
        )
        return session.create(spec)

    session.make_network()
    containers = run_all(hosts, lambda name, _: create(name), workers=CALLS_AT_ONCE)
    return dict(zip(hosts, containers, strict=True))


def _carry_out(run: _Running) -> TrainOutcome:
    """Starts the hosts, follows them to their end, and collects the results."""
    began = time.monotonic()
    session, containers = run.session, list(run.containers.values())
    lock = threading.Lock()
    followers: dict[str, LogFollower] = {}
    try:
        for name, container in run.containers.items():
            followers[name] = LogFollower(container, run.log.sink_of(name), lock)
        run_all(containers, lambda container, _: session.start(container), workers=CALLS_AT_ONCE)
        timed_out = _wait(session, containers, run.job.timeout)
    except BaseException as error:  # a signal, or an error of the engine: keep the checkpoints
        with contextlib.suppress(DockerException, RequestException):
            _settle(run, followers)
        artifacts.keep_checkpoints(session, run.checkpoints.folder, run.job.output)
        if isinstance(error, Interrupted) and any(map(session.has_started, containers)):
            raise _stopped(run, error) from None
        raise
    _settle(run, followers)
    return _collect(run, began, timed_out=timed_out)


def _collect(run: _Running, began: float, *, timed_out: bool) -> TrainOutcome:
    """Collects how the hosts ended, and their results; began: the job's start, by the monotonic clock."""
    session, job = run.session, run.job
    states = {name: read_state(container) for name, container in run.containers.items()}
    roots = {name: session.scratch / name for name in run.containers}
    failures = read_failures(session.scratch, states)
    first = first_failed(states)
    exit_code = _TIMED_OUT if timed_out else 0 if first is None else states[first].exit_code
    if timed_out:
        failures = dict.fromkeys(run.containers, f"The job was stopped at its time limit of {job.timeout:.0f} s.")
    reason = next(iter(failures[first or next(iter(states))].splitlines()), "") if failures else ""
    kept = model_archive = None
    if exit_code == 0:
        model_archive = artifacts.pack_folder(session, roots, "model", job.output / "model.tar.gz")
        if model_archive is None:
            session.say(
                "warning: the job left no model, because /opt/ml/model is empty: save it to the folder that "
                "SM_MODEL_DIR names."
            )
        artifacts.report_deleted_checkpoints(session, run.checkpoints.folder)
    else:
        kept = artifacts.keep_checkpoints(session, run.checkpoints.folder, job.output)
        files = run.log.keep_failures(failures)
        session.say(f"The whole log is {run.log.path}; why the job failed is in {files} next to it.")
        artifacts.rename_earlier(session, job.output / "model.tar.gz")
    packed = artifacts.pack_folder(session, roots, "output/data", job.output / "output.tar.gz")
    if packed is not None:
        session.say(f"The job's files in {opt_ml.ROOT}/output/data are in {packed}.")
    return TrainOutcome(exit_code, time.monotonic() - began, model_archive, packed, kept, failures, reason)


def _stopped(run: _Running, stop: Interrupted) -> Interrupted:
    """Keeps the failure files of a job that was stopped by a signal, and tells the user that there is no model. Returns
    the exception to raise; its sentence stands for the hosts' own, which are only in the log.
    """
    session = run.session
    files = ""
    # Even if the engine is gone or the disk full, report that the job was stopped.
    with contextlib.suppress(DockerException, RequestException, UserError):
        states = {name: read_state(each) for name, each in run.containers.items()}
        files = run.log.keep_failures(read_failures(session.scratch, states))
    for name in ("model.tar.gz", "output.tar.gz"):
        artifacts.rename_earlier(session, run.job.output / name)
    model = f"{opt_ml.ROOT}/model"
    if any(results.read_folder(session.scratch / name, "model", model).files for name in run.containers):
        session.say(f"The files in {model} are not kept: a stopped job gets no model.tar.gz.")
    failures = f", and how its hosts ended is in {files} next to it" if files else ""
    return Interrupted(stop.signum, f"the job was stopped by {stop.by}; its log is {run.log.path}{failures}")


def _wait(session: RunSession, containers: Collection[Container], timeout: float | None) -> bool:
    """Waits until every host has ended, or until the grace after a failure is over. Returns whether the job reached its
    time limit.
    """
    limit = math.inf if timeout is None else time.monotonic() + timeout
    patience = math.inf
    left = list(containers)
    while left:
        session.interrupts.wait(_POLL_SECONDS)
        running = session.list_running()
        ended = [each for each in left if each.id not in running]
        left = [each for each in left if each.id in running]
        if patience == math.inf and any(read_state(each).exit_code != 0 for each in ended):
            patience = time.monotonic() + _PEERS_GRACE
        if time.monotonic() > limit:
            return True
        if left and time.monotonic() > patience:
            session.say(f"A host failed {_PEERS_GRACE:.0f} s ago and {len(left)} still run(s).")
            return False
    return False


def _settle(run: _Running, followers: Mapping[str, LogFollower]) -> None:
    """Stops running hosts, waits for the end of the logs, and gives the files to the caller."""
    run.session.stop()
    deadline = time.monotonic() + _LOGS_GRACE
    for name, follower in followers.items():
        # The log of a container that was never started does not end.
        if run.session.has_started(run.containers[name]):
            follower.join(max(0.0, deadline - time.monotonic()))
    run.session.chown_scratch()
    chown_new_files(run.session.client, run.session.image, run.checkpoints)
