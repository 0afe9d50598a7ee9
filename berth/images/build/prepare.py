"""Prepares builds: finds missing inputs, provides them and makes the plans.

Problems of the checkout, the base's name, locks and files are raised together before anything is written; a missing
engine, a failed pull or a failed download is raised later.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from berth.common import engine
from berth.common.console import Show
from berth.common.errors import UserError, refuse
from berth.common.files import link_files, same_content, same_size
from berth.images.build.base import find_base, local_base, name_problems
from berth.images.build.plan import Base, BuildPlan, Provided, build_plan, refusals
from berth.images.build.revision import checkout_problems, read_revision
from berth.images.network import build_files, build_network, downloads
from berth.images.network.build_network import Network
from berth.images.pins import pins
from berth.images.pins.parts import effects
from berth.images.scratch import DRY_RUNS, SECRETS, scratch_folder


@dataclass(frozen=True)
class BuildOptions:
    """The options of `build`: profile, omitted parts, base image, mirror, and whether only to print the commands."""

    profile: str
    without: tuple[str, ...] = ()
    base_image: str | None = None
    mirror: str | None = None
    dry_run: bool = False


@contextmanager
def secrets_folder(*, dry_run: bool) -> Iterator[Path]:
    """A folder for the secrets of one command, removed at its end; a dry run keeps it for the printed commands."""
    if dry_run:
        yield pins.CACHE / f"{DRY_RUNS}{token_hex(4)}"
        return
    with scratch_folder(SECRETS, pins.CACHE) as folder:
        yield folder


def prepare(
    all_pins: pins.Pins,
    images: Sequence[str],
    options: BuildOptions,
    secrets: Path,
    say: Callable[[str], None],
    show: Show = lambda *_: None,
) -> list[BuildPlan]:
    """The plans of these images' builds, after their secrets, wheels, files and base were provided. One UserError lists
    the problems of checkout, base name, locks and files. With `dry_run` nothing is downloaded or pulled.
    """
    profile = all_pins.profile(options.profile)
    images = profile.available_images(images)
    profile = profile.without(options.without)
    network = build_network.with_profiles_index(build_network.gather(os.environ), profile.torch_index, os.environ)
    source = downloads.FileSource(downloads.mirror(options.mirror), network.ca)
    wanted = build_files.wanted_files(profile, images)
    files_folder = pins.ROOT / "docker" / "files"
    found = {want: build_files.find_valid_file(want, (build_files.CACHE, files_folder), say) for want in wanted}
    missing = [want for want, path in found.items() if path is None]
    refuse(
        checkout_problems(pins.ROOT),
        name_problems(options.base_image),
        [reason for image in images for reason in refusals(all_pins, profile, image, pins.ROOT / "docker" / "locks")],
        source.missing(missing, ask=not options.dry_run),
    )
    revision = read_revision(pins.ROOT, os.environ, say)
    for line in effects(profile, images):
        say(line)
    provided_secrets = network.write_secrets(secrets)
    wheels = link_wheels(network, profile, pins.ROOT)
    files = [path for path in found.values() if path is not None]
    if options.dry_run:
        for want in missing:
            say(f"{want.name} is missing: `build` without --dry-run fetches it from {source.shown(want)}.")
        base = _base_of_dry_run(all_pins, options.base_image, say)
    else:
        # The base first, so that a missing engine fails before the downloads.
        base = find_base(engine.connect(), all_pins, options.base_image, say)
        files += [source.fetch(want, build_files.CACHE, say, show) for want in missing]
    read_files = [*wheels, *link_files(files, files_folder, same_content)]
    if options.dry_run and read_files:
        say(f"the commands below read these files, which `build.py` keeps: {', '.join(map(str, read_files))}")
    if options.dry_run and provided_secrets:
        say(
            f"the commands below read network settings in {secrets}, which may contain passwords: remove the folder "
            "when you no longer need it."
        )
    provided = Provided(base, provided_secrets, network.proxies)
    return [build_plan(all_pins, profile, image, revision, provided, pins.ROOT) for image in images]


def _base_of_dry_run(all_pins: pins.Pins, requested: str | None, say: Callable[[str], None]) -> Base:
    """The base on the engine, else its name; then says what a build would do, or why it would fail."""
    reference = requested or all_pins.base_image
    try:
        if found := local_base(engine.connect(), all_pins, requested):
            return found
        say(f"the base {reference} is not on the engine: `build` without --dry-run pulls it.")
    except UserError as error:
        say(f"a build can't use the base {reference} yet: {error}")
    return Base(reference, reference.partition("@")[2])


def link_wheels(network: Network, profile: pins.Profile, root: Path) -> list[Path]:
    """Links the wheels in pip's find-links folders that a profile's locks name to docker/wheels of the context `root`,
    where builds look for them; returns their new paths.
    """
    locks = [path.read_text() for path in sorted((root / "docker" / "locks" / profile.name).glob("*.txt"))]
    wheels = build_network.wanted_wheels(network.index.folders, locks)
    return link_files(wheels, root / "docker" / "wheels", same_size)
