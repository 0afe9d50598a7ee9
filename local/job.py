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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from docker.errors import DockerException, NotFound
from docker.models.containers import Container
from requests.exceptions import RequestException

from berth.images.engine import connect
from berth.images.errors import UserError
from berth.local import archive, opt_ml
from berth.local.logs import Follower
from berth.local.session import Session, engine_errors, is_running, require_gpus

# /dev/shm of each host: Docker's 64 MB are too few for data loaders (a bus error).
SHM_SIZE = "1g"
_TIMED_OUT = 124
_KILLED = 137
_POLL_SECONDS = 0.25
# After one host failed the others have this long to end by themselves: the train entry takes about a second, a user's
# own program that waits for its peers would wait for ever.
_PEERS_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """How a job ended.

    `exit_code` is that of the first host that failed, 0 if none did, 124 at the time limit. `failures` says per host
    why (the text of /opt/ml/output/failure first, else what the engine knows). Archives and checkpoints are None where
    the job left none.
    """

    exit_code: int
    seconds: float
    model_archive: Path | None = None
    output_archive: Path | None = None
    checkpoints: Path | None = None
    failures: dict[str, str] = field(default_factory=dict)


def run_train(
    data: Path | Mapping[str, Path],
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
    stop_grace: float = 30.0,
    log: Callable[[str], None] = print,
    say: Callable[[str], None] = print,
) -> TrainOutcome:
    """Runs a training job in `hosts` containers of `image`; writes model.tar.gz into `output`, owned by the caller.

    data: a file, a folder (see opt_ml.find_channels), or the channels by name. model: a folder or model.tar.gz, becomes
    the channel `model`. code: the user's source folder, copied to /opt/ml/code (hyperparameter sagemaker_program names
    the file). checkpoints: the folder that all hosts see as /opt/ml/checkpoints, and that stays; without one they are
    kept (in `output`) only if the job does not end well. timeout, stop_grace: seconds. log takes the containers' lines,
    say takes ours.

    Raises UserError before any container starts if the input can't work, and Interrupted after a signal, when
    everything it started is gone.
    """
    names = opt_ml.host_names(hosts)
    channels = dict(data) if isinstance(data, Mapping) else opt_ml.find_channels(data)
    opt_ml.check_channels(channels)
    if model is not None and opt_ml.MODEL_CHANNEL in channels:
        raise UserError(
            "The data has a channel called model, and so has --model: rename the folder or leave --model out."
        )
    if code is not None and not code.is_dir():
        raise UserError(f"There is no folder {code}: pass the folder that holds your program.")
    output = writable(output)
    with engine_errors():
        client = connect()
        if gpus:
            require_gpus(client)
        with Session(client, image, say=say, stop_grace=stop_grace) as session:
            if model is not None:
                channels[opt_ml.MODEL_CHANNEL] = archive.model_home(archive.model_folder(model, session.scratch), model)
            # The hosts share this machine's cores, where on SageMaker each has its own.
            share = {"OMP_NUM_THREADS": str(max(1, int(client.info()["NCPU"]) // hosts))} if hosts > 1 else {}
            told = opt_ml.with_model(hyperparameters or {}, has_model=model is not None, has_code=code is not None)
            for name, path in sorted(channels.items()):
                files = opt_ml.channel_files(path)
                say(f"Channel {name}: {len(files)} file(s) from {path}")
            saved = writable(session.scratch / "checkpoints" if checkpoints is None else checkpoints)
            containers: dict[str, Container] = {}
            for name in names:
                root = session.scratch / name
                opt_ml.lay_out(
                    root,
                    host=name,
                    hosts=names,
                    instance_type="local_gpu" if gpus else "local",
                    hyperparameters=told,
                    channels=channels,
                    code=code,
                )
                mounts = {opt_ml.ROOT: (root, False), f"{opt_ml.ROOT}/checkpoints": (saved, False)}
                mounts |= {there: (here, True) for there, here in opt_ml.channel_mounts(channels).items()}
                containers[name] = session.create(
                    name,
                    command=["train"],
                    mounts=mounts,
                    environment={"TRAINING_JOB_NAME": f"berth-{session.run_id}", **share, **(environment or {})},
                    gpus=gpus,
                    shm_size=SHM_SIZE,
                )
            return _carry_out(session, containers, output, saved, timeout, log)


@dataclass(frozen=True, slots=True)
class HostState:
    """How a host's container ended: its exit code, when (the engine's own timestamp), and whether memory ran out."""

    exit_code: int
    finished: str
    out_of_memory: bool = False


def first_failure(states: Mapping[str, HostState]) -> int:
    """The exit code of the host that failed first, for the others fail because of it; 0 if none failed."""
    failed = [state for state in states.values() if state.exit_code != 0]
    return min(failed, key=lambda state: state.finished).exit_code if failed else 0


def failure_text(root: Path, state: HostState) -> str:
    """Why a host failed: what it wrote to /opt/ml/output/failure, and what only the engine knows; "" if it did not."""
    if state.exit_code == 0:
        return ""
    told = root / "output/failure"
    reasons = [told.read_text(errors="replace").strip()] if told.is_file() else []
    if state.out_of_memory:
        reasons.append("Out of memory: the kernel killed a process of this host: use smaller batches.")
    elif not reasons:
        by = " (SIGKILL)" if state.exit_code == _KILLED else ""
        reasons.append(f"The container ended with exit code {state.exit_code}{by} and wrote no /opt/ml/output/failure.")
    return "\n".join(reason for reason in reasons if reason)


def _carry_out(
    session: Session,
    containers: Mapping[str, Container],
    output: Path,
    checkpoints: Path,
    timeout: float | None,
    log: Callable[[str], None],
) -> TrainOutcome:
    """Starts the hosts, follows them to their end, and brings home what they left."""
    began = time.monotonic()
    lock = threading.Lock()
    followers: list[Follower] = []
    try:
        for name, container in containers.items():
            followers.append(Follower(container, _prefixing(log, name), lock))
            session.start(container)
        timed_out = _wait(session, list(containers.values()), timeout)
    except BaseException:  # a signal, or an engine that fails: what the job has saved so far stays
        with contextlib.suppress(DockerException, RequestException):
            _settle(session, followers, checkpoints)
        _keep(session, checkpoints, output)
        raise
    _settle(session, followers, checkpoints)
    states = {name: _state_of(container) for name, container in containers.items()}
    exit_code = _TIMED_OUT if timed_out else first_failure(states)
    roots = {name: session.scratch / name for name in containers}
    failures = {name: reason for name in containers if (reason := failure_text(roots[name], states[name]))}
    if timed_out:
        failures = dict.fromkeys(containers, f"The job was stopped at its time limit of {timeout:.0f} s.")
    kept = _keep(session, checkpoints, output) if exit_code != 0 else None
    if exit_code == 0:
        model_archive = _pack(session, roots, "model", output / "model.tar.gz")
        if model_archive is None:
            session.say("The job wrote no model: /opt/ml/model was empty at its end.")
    else:
        model_archive = None
        _set_aside(session, output / "model.tar.gz")
    results = _pack(session, roots, "output/data", output / "output.tar.gz")
    return TrainOutcome(exit_code, time.monotonic() - began, model_archive, results, kept, failures)


def _pack(session: Session, roots: Mapping[str, Path], folder: str, target: Path) -> Path | None:
    """The archive of one folder of every host; if it can't be written, the folders stay where the error says."""
    folders = [root / folder for root in roots.values()]
    try:
        packed = archive.pack(folders, target)
        if packed is None:
            _set_aside(session, target)
        return packed
    except UserError as error:
        rescued = session.rescue([path for path in folders if any(path.iterdir())])
        raise UserError(f"{error} What the job wrote is kept in {rescued}.") from None


def _set_aside(session: Session, earlier: Path) -> None:
    """Renames an archive of an earlier job where this one left none: nobody shall take it for this job's."""
    if earlier.exists():
        aside = earlier.with_name(f"earlier-{earlier.name}")
        earlier.replace(aside)
        session.say(f"{earlier.name} was of an earlier job: it is {aside} now.")


def _prefixing(log: Callable[[str], None], name: str) -> Callable[[str], None]:
    """A sink that puts the host's name before each line, as compose does in the SDK's local mode."""
    return lambda line: log(f"{name} | {line}")


def _wait(session: Session, running: list[Container], timeout: float | None) -> bool:
    """Until every host has ended, or the others' grace after a failure has passed; True at the time limit."""
    limit = math.inf if timeout is None else time.monotonic() + timeout
    patience = math.inf
    while running:
        session.interrupts.wait(_POLL_SECONDS)
        still = [each for each in running if is_running(each)]
        ended = [each for each in running if each not in still]
        running = still
        if patience == math.inf and any(_state_of(each).exit_code != 0 for each in ended):
            patience = time.monotonic() + _PEERS_GRACE
        if time.monotonic() > limit:
            return True
        if running and time.monotonic() > patience:
            session.say(f"A host failed {_PEERS_GRACE:.0f} s ago and {len(running)} still run(s).")
            return False
    return False


def _settle(session: Session, followers: Sequence[Follower], checkpoints: Path) -> None:
    """Stops what still runs, lets the logs come to their end, and makes the files the caller's own."""
    session.stop()
    for follower in followers:
        follower.join(10.0)
    session.hand_over(checkpoints)


def _keep(session: Session, checkpoints: Path, output: Path) -> Path | None:
    """What a job that did not end well saved on the way stays, so that a next one can go on from it."""
    if not any(checkpoints.iterdir()):
        return None
    if checkpoints.is_relative_to(session.scratch):
        checkpoints = Path(shutil.move(checkpoints, output / f"checkpoints-{session.run_id}"))
    session.say(f"Checkpoints are kept in {checkpoints}; pass it as --checkpoints to go on from them.")
    return checkpoints


def _state_of(container: Container) -> HostState:
    try:
        container.reload()
    except NotFound:
        return HostState(_KILLED, "")  # somebody removed it
    state = container.attrs["State"]
    return HostState(state["ExitCode"], state["FinishedAt"], state["OOMKilled"])


def writable(folder: Path) -> Path:
    """A folder for results, made if need be; refused before the work if it could not take them after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} can't be made ({error.strerror}): choose another.") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder} is not yours to write to: choose another.")
    return folder.absolute()
