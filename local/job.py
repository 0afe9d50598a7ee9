"""A training job on this machine: /opt/ml, N hosts with a network of their own, their logs, and model.tar.gz.

What SageMaker does with an image, data and hyperparameters, `run_train` does with containers: lay out, start, follow,
collect, and leave nothing behind but the output folder.
"""

import contextlib
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from docker.errors import DockerException
from docker.models.containers import Container
from requests.exceptions import RequestException

from berth.common.engine import connect
from berth.common.errors import UserError
from berth.local import archive, checks, cleanup, opt_ml, results
from berth.local.host_states import failures_of, first_failed, state_of
from berth.local.job_log import JobLog
from berth.local.log_stream import Follower
from berth.local.output_folders import LOCK, exclusive
from berth.local.pip_secrets import lend
from berth.local.session import Session, engine_errors, require_gpus
from berth.local.signals import Interrupted

# /dev/shm of each host: Docker's 64 MB are too few for data loaders (a bus error).
SHM_SIZE = "1g"
_TIMED_OUT = 124
_POLL_SECONDS = 0.25
# After one host failed the others have this long to end by themselves: the train entry takes about a second, a user's
# own program that waits for its peers would wait for ever.
_PEERS_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """How a job ended.

    `exit_code` is that of the first host that failed, 0 if none did, 124 at the time limit; `reason` is what that host
    said, in one line. `failures` says per host why (the text of /opt/ml/output/failure first, else what the engine
    knows). Archives and checkpoints are None where the job left none.
    """

    exit_code: int
    seconds: float
    model_archive: Path | None = None
    output_archive: Path | None = None
    checkpoints: Path | None = None
    failures: dict[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TrainJob:
    """What is asked for, checked: the hosts' names, the channels by name, and folders that can be written to."""

    output: Path
    hosts: list[str]
    channels: Mapping[str, Path]
    hyperparameters: Mapping[str, str]
    environment: Mapping[str, str]
    model: Path | None = None
    code: Path | None = None
    checkpoints: Path | None = None
    gpus: bool = False
    timeout: float | None = None

    @property
    def folders(self) -> list[Path]:
        """The user's folders that the job writes to."""
        return [self.output] if self.checkpoints is None else [self.output, self.checkpoints]


def run_train(
    data: Path | Mapping[str, Path] | None,
    *,
    image: str,
    output: Path,
    model: Path | None = None,
    hosts: int = 1,
    hyperparameters: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    code: Path | None = None,
    checkpoints: Path | None = None,
    gpus: bool = False,
    timeout: float | None = None,
    stop_grace: float = 10.0,
    log: Callable[[str], None] = print,
    say: Callable[[str], None] = print,
) -> TrainOutcome:
    """Runs a training job in `hosts` containers of `image`; writes model.tar.gz into `output`, owned by the caller.

    data: a file, a folder (see opt_ml.find_channels), the channels by name, or None for a program that needs none.
    model: a folder or model.tar.gz, becomes the channel `model`. code: the user's source folder, copied to /opt/ml/code
    (hyperparameter sagemaker_program names the file); where it has a requirements.txt, pip gets this machine's CA and
    indexes. checkpoints: the folder that all hosts see as /opt/ml/checkpoints, and that stays; without one they are
    kept (in `output`) only if the job does not end well. timeout, stop_grace: seconds. log takes the containers' lines,
    which stay in `output` as well (train.log), and say takes ours.

    Raises UserError before any container starts if the input can't work, and Interrupted after a signal, when
    everything it started is gone.
    """
    names = opt_ml.host_names(hosts)
    channels = opt_ml.channels_of(data, needed=code is None)
    if model is not None and opt_ml.MODEL_CHANNEL in channels:
        raise UserError(
            "The data has a channel called model, and so has --model: rename the folder or leave --model out."
        )
    if code is not None and not code.is_dir():
        raise UserError(f"there is no folder {code}: pass the folder that holds your program.")
    job = TrainJob(
        writable(output),
        names,
        channels,
        opt_ml.with_model(hyperparameters or {}, has_model=model is not None, has_code=code is not None),
        environment or {},
        model,
        code,
        None if checkpoints is None else writable(checkpoints),
        gpus,
        timeout,
    )
    with engine_errors():
        client = connect()
        if gpus:
            require_gpus(client)
        engine = client.info()
        checks.check_hosts(hosts, checks.least_mb(code is not None), checks.available_mb(engine["MemTotal"] / 1e6))
        with Session(client, image, say=say, stop_grace=stop_grace) as session:
            # The hosts share this machine's cores, where on SageMaker each has its own.
            share = {"OMP_NUM_THREADS": str(max(1, int(engine["NCPU"]) // hosts))} if hosts > 1 else {}
            channels = _all_channels(session, job)
            for folder in job.folders:
                make(folder)
            with exclusive(job.folders):
                return _run(session, job, channels, share, log)


def _run(
    session: Session,
    job: TrainJob,
    channels: Mapping[str, Path],
    share: Mapping[str, str],
    log: Callable[[str], None],
) -> TrainOutcome:
    """The whole job inside its session; `share` are variables that each host gets for its part of this machine."""
    saved = session.scratch / "checkpoints" if job.checkpoints is None else job.checkpoints
    saved.mkdir(exist_ok=True)
    before = cleanup.Before.of(saved)
    with JobLog(job.output, log, session.interrupts) as lines:
        containers = _create_hosts(session, job, channels, share, saved)
        return _carry_out(session, job, containers, before, lines)


def _all_channels(session: Session, job: TrainJob) -> dict[str, Path]:
    """The job's channels and the model's, which is refused if it is none."""
    channels = dict(job.channels)
    if job.model is not None:
        folder = archive.model_folder(job.model, session.scratch)
        tokenizer = job.code is None and "tokenizer_name" not in job.hyperparameters
        channels[opt_ml.MODEL_CHANNEL] = archive.model_home(folder, job.model, tokenizer=tokenizer)
    for name, path in sorted(channels.items()):
        session.say(f"Channel {name}: {len(opt_ml.channel_files(path))} file(s) from {path}")
    return channels


def _create_hosts(
    session: Session, job: TrainJob, channels: Mapping[str, Path], share: Mapping[str, str], saved: Path
) -> dict[str, Container]:
    """Lays out each host's /opt/ml and makes its container; `saved` is where they all keep checkpoints."""
    lent = lend(job.code, session.scratch, os.environ)
    read_only = {**opt_ml.channel_mounts(channels), **lent.mounts}
    environment = {"TRAINING_JOB_NAME": f"berth-{session.run_id}", **share, **lent.environment, **job.environment}

    def create(name: str) -> Container:
        root = session.scratch / name
        opt_ml.lay_out(
            root,
            host=name,
            hosts=job.hosts,
            instance_type="local_gpu" if job.gpus else "local",
            hyperparameters=job.hyperparameters,
            channels=channels,
            code=job.code,
        )
        mounts = {opt_ml.ROOT: (root, False), f"{opt_ml.ROOT}/checkpoints": (saved, False)}
        mounts |= {there: (here, True) for there, here in read_only.items()}
        return session.create(
            name, command=["train"], mounts=mounts, environment=environment, gpus=job.gpus, shm_size=SHM_SIZE
        )

    session.network()
    return dict(zip(job.hosts, session.many(create, job.hosts, "Made"), strict=True))


def _carry_out(
    session: Session,
    job: TrainJob,
    containers: Mapping[str, Container],
    before: cleanup.Before,
    lines: JobLog,
) -> TrainOutcome:
    """Starts the hosts, follows them to their end, and brings home what they left."""
    began = time.monotonic()
    lock = threading.Lock()
    followers: list[Follower] = []
    try:
        for name, container in containers.items():
            followers.append(Follower(container, lines.of(name), lock))
        session.many(session.start, list(containers.values()), "Started")
        timed_out = _wait(session, containers.values(), job.timeout)
    except BaseException as error:  # a signal, or an engine that fails: what the job has saved so far stays
        with contextlib.suppress(DockerException, RequestException):
            _settle(session, followers, before)
        _keep(session, before.folder, job.output)
        if isinstance(error, Interrupted):
            raise _stopped(session, job, containers, lines, error) from None
        raise
    _settle(session, followers, before)
    states = {name: state_of(container) for name, container in containers.items()}
    roots = {name: session.scratch / name for name in containers}
    failures = failures_of(session.scratch, states)
    first = first_failed(states)
    exit_code = _TIMED_OUT if timed_out else 0 if first is None else states[first].exit_code
    if timed_out:
        failures = dict.fromkeys(containers, f"The job was stopped at its time limit of {job.timeout:.0f} s.")
    reason = next(iter(failures[first or job.hosts[0]].splitlines()), "") if failures else ""
    kept = model_archive = None
    if exit_code == 0:
        model_archive = _pack(session, roots, "model", job.output / "model.tar.gz")
        if model_archive is None:
            session.say("The job left no model: there is no file in /opt/ml/model.")
    else:
        kept = _keep(session, before.folder, job.output)
        files = lines.keep_failures(failures)
        session.say(f"The whole log is {lines.path}; why the job failed stands in {files} beside it.")
        _set_aside(session, job.output / "model.tar.gz")
    packed = _pack(session, roots, "output/data", job.output / "output.tar.gz")
    return TrainOutcome(exit_code, time.monotonic() - began, model_archive, packed, kept, failures, reason)


def _stopped(
    session: Session, job: TrainJob, containers: Mapping[str, Container], lines: JobLog, stop: Interrupted
) -> Interrupted:
    """Brings home why the hosts ended that a signal stopped, and says that they leave no model; what is to be raised,
    which says once what each of them has written to the log.
    """
    files = ""
    # An engine that has gone, or a disk that is full, does not keep the job from being said to have been stopped.
    with contextlib.suppress(DockerException, RequestException, UserError):
        files = lines.keep_failures(
            failures_of(session.scratch, {name: state_of(each) for name, each in containers.items()})
        )
    for name in ("model.tar.gz", "output.tar.gz"):
        _set_aside(session, job.output / name)
    if any(results.look(session.scratch / name, "model", f"{opt_ml.ROOT}/model").files for name in containers):
        session.say(f"What lay in {opt_ml.ROOT}/model is not kept: no model.tar.gz is made of a job that was stopped.")
    beside = f", and how its hosts ended stands in {files} beside it" if files else ""
    return Interrupted(stop.signum, f"the job was stopped by {stop.by}; its log is {lines.path}{beside}")


def _pack(session: Session, roots: Mapping[str, Path], folder: str, target: Path) -> Path | None:
    """The archive of one folder of every host, of a name that several have the first host's file; if it can't be
    written, the folders stay where the error says.
    """
    files: dict[str, Path] = {}
    for host, root in roots.items():
        found = results.look(root, folder, f"{opt_ml.ROOT}/{folder}")
        if twice := sorted(found.files.keys() & files.keys()):
            names = f"such as {twice[0]!r}, which an earlier host left too"
            session.say(f"{target.name}: {len(twice)} file(s) of {host} stay out, {names}.")
        files = {**found.files, **files}
        if sentence := found.sentence(f"{opt_ml.ROOT}/{folder} of {host}"):
            session.say(sentence)
    try:
        packed = archive.pack(files, target)
        if packed is None:
            _set_aside(session, target)
        return packed
    except UserError as error:
        rescued = session.rescue([root / folder for root in roots.values() if not results.no_folder(root, folder)])
        raise UserError(f"{error} What the job wrote is kept in {rescued}.") from None


def _set_aside(session: Session, earlier: Path) -> None:
    """Renames an archive of an earlier job where this one left none: nobody shall take it for this job's."""
    if earlier.exists():
        aside = earlier.with_name(f"earlier-{earlier.name}")
        earlier.replace(aside)
        session.say(f"{earlier.name} was of an earlier job: it is {aside} now.")


def _wait(session: Session, containers: Collection[Container], timeout: float | None) -> bool:
    """Until every host has ended, or the others' grace after a failure has passed; True at the time limit."""
    limit = math.inf if timeout is None else time.monotonic() + timeout
    patience = math.inf
    left = list(containers)
    while left:
        session.interrupts.wait(_POLL_SECONDS)
        running = session.running()
        ended = [each for each in left if each.id not in running]
        left = [each for each in left if each.id in running]
        if patience == math.inf and any(state_of(each).exit_code != 0 for each in ended):
            patience = time.monotonic() + _PEERS_GRACE
        if time.monotonic() > limit:
            return True
        if left and time.monotonic() > patience:
            session.say(f"A host failed {_PEERS_GRACE:.0f} s ago and {len(left)} still run(s).")
            return False
    return False


def _settle(session: Session, followers: Sequence[Follower], before: cleanup.Before) -> None:
    """Stops what still runs, lets the logs come to their end, and makes the files the caller's own."""
    session.stop()
    for follower in followers:
        follower.join(10.0)
    session.hand_over()
    cleanup.hand_over_new(session.client, session.image, before)


def _keep(session: Session, checkpoints: Path, output: Path) -> Path | None:
    """What a job that did not end well saved on the way stays, so that a next one can go on from it."""
    ours = checkpoints.is_relative_to(session.scratch)
    for path, kind in list(results.strangers(checkpoints, f"{opt_ml.ROOT}/checkpoints")):
        shown = repr(path.relative_to(checkpoints).as_posix())
        session.say(f"Among the checkpoints is {shown}, {kind}: " + ("it is removed." if ours else "do not follow it."))
        if ours:
            path.unlink()
    if not any(path.name != LOCK for path in checkpoints.iterdir()):
        return None
    if ours:
        checkpoints = Path(shutil.move(checkpoints, output / f"checkpoints-{session.run_id}"))
    session.say(f"Checkpoints are kept in {checkpoints}; pass it as --checkpoints to go on from them.")
    return checkpoints


def writable(folder: Path) -> Path:
    """A folder for results, refused before the work if it could not be made or take them after it. Makes nothing."""
    whole = folder.absolute()
    there = next(each for each in (whole, *whole.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise UserError(f"{folder} can't be made ({there} is no folder): choose another.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there} is not yours to write to: choose another.")
    return whole


def make(folder: Path) -> None:
    """Makes a folder for results, and those above it, if they are not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} can't be made ({error.strerror}): choose another.") from None
