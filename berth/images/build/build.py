"""Builds an image as it is planned: runs Docker's command line and follows it. A thin shell."""

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
from berth.images.pins import pins
from berth.images.build.buildkit_log import BuildStep, Progress
from berth.images.build.plan import BuildPlan

KEPT_LOGS = 20
_LOG = "the build's log"
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
# How the client says that its connection broke, or that nobody answers any more.
_GONE = re.compile(
    r"^(?:ERROR: )?(?:failed to receive status: rpc error: code = Unavailable|error during connect|unexpected EOF$"
    r"|Cannot connect to the Docker daemon)|rpc error: code = Unavailable desc = (?:transport|error reading)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Built:
    """A finished build: the image's id, its steps in a few words, its seconds, and where the whole log is."""

    plan: BuildPlan
    image_id: str
    steps: str
    seconds: float
    log: Path


def run_build(plan: BuildPlan, client: Path, on_step: Callable[[BuildStep, Progress], None]) -> Built:
    """Runs a build, with `on_step` called at each step's begin and end; UserError names the failed step and the log."""
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
                "podman answers in the engine's place, and has no BuildKit, so it can't build: `build.py doctor` "
                f"says how to reach an engine of Docker's own. The whole log: {log}"
            )
        raise UserError(failure_sentence(progress, log.read_text(encoding="utf-8"), log))
    return Built(plan, _image_id(engine.connect(), plan.tags[0]), progress.summary, time.monotonic() - began, log)


def _is_podman() -> bool:
    try:
        return engine.is_podman(engine.connect().version())
    except UserError:  # the log says it as well
        return False


def failure_sentence(progress: Progress, text: str, log: Path) -> str:
    """Why a build failed: a full disk, an engine that is gone, the layer's own sentence, or the step and its last
    lines.
    """
    step = progress.failure
    own = [
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
    if _GONE.search(text):
        return (
            "the Docker engine stopped in the middle of the build: start it with `sh docker/engine.sh`, then build "
            f"again; it has kept the steps that ended. The whole log: {log}"
        )
    if own:
        output = f"\n  The last lines of `{step.name}`:\n    {lines}" if step and lines else ""
        return f"{own[0]}{output}\n  The whole log: {log}"
    if step is None:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
        return f"the build failed before its first step: {last.strip()} The whole log: {log}"
    return f"the step `{step.name}` failed; its last lines:\n    {lines}\n  The whole log: {log}"


def _log_file(plan: BuildPlan) -> Path:
    folder = pins.CACHE / "logs"
    with explain_os_errors(folder, _LOG):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # a log may show what a layer's network settings say, in those of earlier versions too
        for old in sorted(folder.glob("*.log"))[:-KEPT_LOGS]:
            old.unlink(missing_ok=True)
    # With the process: two builds of one image may begin in one second.
    return folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{plan.image}-{plan.profile}-{os.getpid()}.log"


@contextmanager
def _opened(log: Path) -> Iterator[Callable[[str], None]]:
    """Writes to the log, each at once: what is kept back would be refused by a full disk when the file is closed."""
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
        raise UserError(f"the build ended well, but the engine does not show {tag}: run it again.") from None
