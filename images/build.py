"""Builds an image: gathers what `plan.py` needs, runs Docker's command line and follows it. A thin shell."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from berth.common import engine
from berth.common.console import Show
from berth.common.errors import UserError, refuse
from berth.common.files import explain_os_errors, link_files, same_content, same_size
from berth.images import build_files, build_network, dockerfiles, downloads, pins
from berth.images.base import find_base, local_base
from berth.images.buildkit_log import Progress, Step
from berth.images.plan import Base, BuildPlan, Revision, build_plan, refusals

KEPT_LOGS = 20
_LOG = "the build's log"


@dataclass(frozen=True)
class Built:
    """A finished build: the image's id, its steps in a few words, its seconds, and where the whole log is."""

    plan: BuildPlan
    image_id: str
    steps: str
    seconds: float
    log: Path


def revision(root: Path) -> Revision:
    """The commit of the checkout, and whether what makes an image differs from it: any file that git knows, or a new
    one in what the engine is sent. A person's own `src/` beside them is his own.
    """

    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        except FileNotFoundError:  # no git here: the archive of a release
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return Revision("none")
    sent = (root / ".dockerignore").read_text().splitlines()
    changed = is_changed(git("status", "--porcelain"), [line[1:] for line in sent if line.startswith("!")])
    return Revision(commit, changed, git("show", "-s", "--format=%cI", "HEAD"))


def is_changed(status: str, sent: Sequence[str]) -> bool:
    """Whether one of the lines of `git status --porcelain` matters to an image; `sent` goes to the engine."""
    new = "?? "
    return any(
        not line.startswith(new) or line.removeprefix(new).startswith(tuple(sent)) for line in status.splitlines()
    )


def prepare(
    image: str,
    profile: pins.Profile,
    base_image: str | None,
    *,
    mirror: str | None = None,
    dry_run: bool,
    say: Callable[[str], None],
    show: Show = lambda *_: None,
    root: Path = pins.ROOT,
) -> BuildPlan:
    """The plan of a build, with its secrets, wheels and files laid out on disk; refusals come before anything is made.

    mirror: where files are fetched from instead of their own URLs; show: told of each piece of a download.
    """
    kit = pins.load(root / "docker" / "pins.toml")
    found = build_network.gather(os.environ)
    source = downloads.Source(downloads.mirror(mirror), found.ca)
    folders = (build_files.CACHE, root / "docker" / "files")  # a person may fill the second one as well
    at_hand = {want: build_files.at_hand(want, folders, say) for want in build_files.of_image(profile, image)}
    missing = [want for want, path in at_hand.items() if path is None]
    refuse(refusals(profile, image, root / "docker" / "locks"), source.lacks(missing, ask=not dry_run))

    secrets = found.write_secrets(pins.CACHE / "secrets")
    link_local_wheels(found, profile, root)
    if dry_run:
        for want in missing:
            say(f"{want.name} is not here: `build` without --dry-run fetches it from {source.shown(want)}.")
    else:
        engine.connect()  # where none answers, not after a long download
        for want in missing:
            at_hand[want] = downloads.fetch(source, want, build_files.CACHE, say, show)
    here = [path for path in at_hand.values() if path is not None]
    link_files(here, root / "docker" / "files", same_content)

    base: Base | None
    if dry_run:
        reference = base_image or kit.base_image
        base = base_at_hand(kit, base_image)
        if base is None:
            base = Base(reference, reference.partition("@")[2])
            say(
                f"the base {reference} is not on an engine here: `build` without --dry-run pulls it, or makes "
                f"{kit.imported_base} by docker/base.sh where no registry answers."
            )
    else:
        base = find_base(engine.connect(), kit, base_image, secrets.get("apt-sources"), say)
    return build_plan(
        kit,
        profile,
        image,
        version=pins.version(root),
        revision=revision(root),
        base=base,
        secrets=secrets,
        proxies=found.proxies,
        rendered=dockerfiles.rendered_arguments((root / "docker" / f"{image}.Dockerfile").read_text()),
        root=root,
    )


def link_local_wheels(found: build_network.Network, profile: pins.Profile, root: Path) -> None:
    """Puts the wheels that the profile's locks name, of pip's folders on this machine, into the context `root`."""
    locks = [path.read_text() for path in sorted((root / "docker" / "locks" / profile.name).glob("*.txt"))]
    wheels = build_network.wanted_wheels(found.index.folders, locks)
    link_files(wheels, root / "docker" / "wheels" / profile.name, same_size)


def base_at_hand(kit: pins.Pins, requested: str | None) -> Base | None:
    """The base that the engine has already; None without one, or without an engine."""
    try:
        return local_base(engine.connect(), kit, requested)
    except UserError:
        return None


def run(plan: BuildPlan, client: Path, on_step: Callable[[Step, Progress], None]) -> Built:
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
            for line in process.stdout:
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
        raise UserError(failure_sentence(progress, log.read_text(encoding="utf-8"), log))
    return Built(plan, _image_id(engine.connect(), plan.tags[0]), progress.summary, time.monotonic() - began, log)


def failure_sentence(progress: Progress, text: str, log: Path) -> str:
    """Why a build failed: the layer's own sentence if it gave one, a full disk, or the step and its last lines."""
    step = progress.failure
    own = [
        line.partition("berth: error: ")[2].strip()
        for line in text.splitlines()
        if "berth: error: " in line and "echo" not in line
    ]
    lines = "\n    ".join(line for line in step.tail if "berth: error: " not in line) if step else ""
    if "no space left on device" in text.lower():
        return (
            "the disk of the Docker engine is full: free some with `python build.py clean` or "
            f"`docker builder prune`, then build again. The whole log: {log}"
        )
    if own:
        said = f"\n  The last lines of `{step.name}`:\n    {lines}" if step and lines else ""
        return f"{own[0]}{said}\n  The whole log: {log}"
    if step is None:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
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
