"""Runs the `docker build` command of a plan, follows its output and writes the log."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from berth.common import engine
from berth.common.errors import UserError
from berth.common.files import explain_os_errors
from berth.common.http import without_password
from berth.images.build.buildkit_log import BuildStep, Progress
from berth.images.build.plan import BuildPlan
from berth.images.pins import pins

KEPT_LOGS = 20
_LOG = "the build's log"
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
# The client's errors if its connection broke or the engine is gone.
_ENGINE_LOST = re.compile(
    r"^(?:ERROR: )?(?:failed to receive status: rpc error: code = Unavailable|error during connect|unexpected EOF$"
    r"|Cannot connect to the Docker daemon)|rpc error: code = Unavailable desc = (?:transport|error reading)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Built:
    """A finished build: image id, summary of its steps, duration and log file."""

    plan: BuildPlan
    image_id: str
    steps: str
    seconds: float
    log: Path


def run_build(plan: BuildPlan, client: Path, on_step: Callable[[BuildStep, Progress], None]) -> Built:
    """Runs a build; calls `on_step` at the start and end of each step. UserError names the failed step and the log."""
    log = _log_file(plan)
    progress = Progress()
    began = time.monotonic()
    with _opened(log) as keep:
        keep(plan.command(str(client)) + "\n\n")
        process = subprocess.Popen(
            [str(client), plan.argv[0], "--progress=plain", *plan.argv[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=engine.client_environment(os.environ),
        )
        assert process.stdout is not None
        try:
            for line in map(without_password, process.stdout):
                keep(line)
                step = progress.feed(line)
                if step is not None:
                    on_step(step, progress)
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code != 0:
        if not progress.layers and _is_podman():
            raise UserError(
                "the engine is podman, which has no BuildKit, so it can't build: `build.py doctor` says how to reach "
                f"Docker's own engine. The whole log: {log}"
            )
        raise UserError(failure_sentence(progress, log.read_text(encoding="utf-8"), log))
    return Built(plan, _image_id(engine.connect(), plan.tags[0]), progress.summary, time.monotonic() - began, log)


def _is_podman() -> bool:
    try:
        return engine.is_podman(engine.connect().version())
    except UserError:  # the log has this error too
        return False


def failure_sentence(progress: Progress, text: str, log: Path) -> str:
    """Why a build failed: a full disk, a stopped engine, the error that the layer's script printed, or the failed step
    with its last lines.
    """
    step = progress.failure
    script_errors = [
        line.partition("berth: error: ")[2].strip()
        for line in text.splitlines()
        if "berth: error: " in line and "echo" not in line
    ]
    lines = "\n    ".join(line for line in step.tail if "berth: error: " not in line) if step else ""
    if _FULL.search(text):
        return (
            "the disk of the Docker engine is full: free some with `python build.py clean` or "
            f"`docker builder prune`, then build again. The whole log: {log}"
        )
    if _ENGINE_LOST.search(text):
        return (
            "the Docker engine stopped during the build: start it with `sh docker/engine.sh`, then build "
            f"again; finished steps are cached. The whole log: {log}"
        )
    if script_errors:
        output = f"\n  The last lines of `{step.name}`:\n    {lines}" if step and lines else ""
        return f"{script_errors[0]}{output}\n  The whole log: {log}"
    if step is None:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
        return f"the build failed before its first step: {last.strip()} The whole log: {log}"
    return f"the step `{step.name}` failed; its last lines:\n    {lines}\n  The whole log: {log}"


def _log_file(plan: BuildPlan) -> Path:
    folder = pins.CACHE / "logs"
    with explain_os_errors(folder, _LOG):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # logs, also those of earlier versions, may show network settings
        for old in sorted(folder.glob("*.log"))[:-KEPT_LOGS]:
            old.unlink(missing_ok=True)
    # The process id distinguishes builds of one image that start in the same second.
    return folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{plan.image}-{plan.profile}-{os.getpid()}.log"


@contextmanager
def _opened(log: Path) -> Iterator[Callable[[str], None]]:
    """Opens the log; returns a function that writes to it unbuffered, so a full disk fails the write, not the close."""
    with explain_os_errors(log.parent, _LOG):
        file = os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0)

    def keep(text: str) -> None:
        with explain_os_errors(log.parent, _LOG):
            file.write(text.encode())

    with file:
        yield keep


def _image_id(client: docker.DockerClient, tag: str) -> str:
    try:
        return str(client.images.get(tag).id)
    except ImageNotFound:
        raise UserError(f"the build succeeded, but the engine has no image {tag}: build again.") from None
