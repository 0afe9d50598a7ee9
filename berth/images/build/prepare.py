"""Prepares builds: finds missing inputs, provides them and makes the plans.

`prepare` calls the steps in order: `plan_inputs` (what is missing), `provide` (or, for a dry run, `provide_for_paste`)
and `build_plan`. Problems of the checkout, the base's name, locks and files are raised together before anything is
written; a missing engine, a failed pull or a failed download is raised later.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from berth.common import engine
from berth.common.console import Show
from berth.common.errors import refuse
from berth.common.files import link_files, same_content, same_size
from berth.images.build.base import base_at_hand, find_base, name_problems
from berth.images.build.plan import Base, BuildPlan, Checkout, Provided, build_plan, refusals
from berth.images.build.revision import checkout_problems, read_revision
from berth.images.network import build_files, build_network, downloads
from berth.images.network.build_files import WantedFile
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


@dataclass(frozen=True)
class Site:
    """Where builds are prepared: pins, the checkout's folder, the folder for secrets, this machine's network, the
    source of files, and the functions that report a step (`say`) and the progress of a download (`show`).
    """

    pins: pins.Pins
    root: Path
    secrets: Path
    network: Network
    source: downloads.FileSource
    say: Callable[[str], None]
    show: Show = lambda *_: None


@dataclass(frozen=True)
class BuildInputs:
    """The inputs of a profile's builds besides the checkout: local wheels whose version is locked, paths of the wanted
    files that exist here, and the wanted files to download.
    """

    wheels: Sequence[Path]
    files: tuple[Path, ...]
    missing: tuple[WantedFile, ...]


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
    root, profile = pins.ROOT, all_pins.profile(options.profile)
    network = build_network.with_profiles_index(build_network.gather(os.environ), profile.torch_index, os.environ)
    source = downloads.FileSource(downloads.mirror(options.mirror), network.ca)
    site = Site(all_pins, root, secrets, network, source, say, show)
    images = profile.available_images(images)
    profile = profile.without(options.without)
    found = {want: _at_hand(site, want) for want in build_files.wanted_files(profile, images)}
    _refuse_problems(site, images, profile, found, options)
    checkout = Checkout(root, pins.version(root), read_revision(root, os.environ, say))
    for line in effects(profile, images):
        say(line)
    inputs = plan_inputs(profile, images, found, local_wheels(network, profile, root))
    provided = (provide_for_paste if options.dry_run else provide)(site, inputs, options.base_image)
    return [build_plan(all_pins, profile, image, checkout, provided) for image in images]


def plan_inputs(
    profile: pins.Profile,
    images: Sequence[str],
    found: Mapping[WantedFile, Path | None],
    wheels: Sequence[Path],
) -> BuildInputs:
    """The inputs of these images of a profile. found: the path of each wanted file, None if it is missing. Pure."""
    wanted = build_files.wanted_files(profile, images)
    here = [path for want in wanted if (path := found[want]) is not None]
    return BuildInputs(wheels, tuple(here), tuple(want for want in wanted if found[want] is None))


def provide(site: Site, inputs: BuildInputs, base_image: str | None) -> Provided:
    """Writes the secrets, links the wheels, downloads missing files, and finds or pulls the base."""
    secrets = site.network.write_secrets(site.secrets)
    link_wheels(inputs.wheels, site.root)
    client = engine.connect()  # before the downloads, so that a missing engine fails early
    base = find_base(client, site.pins, base_image, site.say)
    fetched = [site.source.fetch(want, build_files.CACHE, site.say, site.show) for want in inputs.missing]
    link_files([*inputs.files, *fetched], site.root / "docker" / "files", same_content)
    return Provided(base, secrets, site.network.proxies)


def provide_for_paste(site: Site, inputs: BuildInputs, base_image: str | None) -> Provided:
    """Writes the secrets and links the wheels and files that exist, so that the printed commands work when pasted.
    Reports what it wrote, and what a real build would download or pull.
    """
    secrets = site.network.write_secrets(site.secrets)
    wheels = link_wheels(inputs.wheels, site.root)
    files = link_files(inputs.files, site.root / "docker" / "files", same_content)
    if written := [*map(str, wheels), *map(str, files)]:
        site.say(f"the commands below read these files, which were written and are kept: {', '.join(written)}")
    if secrets:
        site.say(
            f"the commands below read network settings in {site.secrets}, which may contain passwords: remove the "
            "folder when you no longer need it."
        )
    for want in inputs.missing:
        site.say(f"{want.name} is missing: `build` without --dry-run fetches it from {site.source.shown(want)}.")
    base = base_at_hand(site.pins, base_image)
    if base is None:
        reference = base_image or site.pins.base_image
        base = Base(reference, reference.partition("@")[2])
        site.say(f"the base {reference} is not on the engine: `build` without --dry-run pulls it.")
    return Provided(base, secrets, site.network.proxies)


def local_wheels(network: Network, profile: pins.Profile, root: Path) -> list[Path]:
    """The wheels in pip's find-links folders on this machine that a profile's locks name."""
    locks = [path.read_text() for path in sorted((root / "docker" / "locks" / profile.name).glob("*.txt"))]
    return build_network.wanted_wheels(network.index.folders, locks)


def link_wheels(wheels: Sequence[Path], root: Path) -> list[Path]:
    """Links wheels to where builds look for them, docker/wheels of the context `root`; returns their new paths."""
    return link_files(wheels, root / "docker" / "wheels", same_size)


def _at_hand(site: Site, want: WantedFile) -> Path | None:
    """A valid file from the user's cache or docker/files; None if there is none."""
    return build_files.find_valid_file(want, (build_files.CACHE, site.root / "docker" / "files"), site.say)


def _refuse_problems(
    site: Site,
    images: Sequence[str],
    profile: pins.Profile,
    found: Mapping[WantedFile, Path | None],
    options: BuildOptions,
) -> None:
    """UserError with all problems: of the checkout, the base's name, locks, and files that have no hash or can't be
    downloaded.
    """
    locks = site.root / "docker" / "locks"
    refuse(
        checkout_problems(site.root),
        name_problems(options.base_image),
        [reason for image in images for reason in refusals(site.pins, profile, image, locks)],
        site.source.missing([want for want, path in found.items() if path is None], ask=not options.dry_run),
    )
