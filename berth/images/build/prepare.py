"""What builds need before they begin: decided first, then provided, then planned.

`prepare` goes the whole way: what is missing (`plan_inputs`), bring it (`provide`, or for a dry run
`provide_for_paste`), and the plans (`plan.py`). Refusals come before anything is made.
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
from berth.images.network import build_files, build_network, downloads
from berth.images.pins import pins
from berth.images.build.base import base_at_hand, find_base, name_problems
from berth.images.network.build_files import WantedFile
from berth.images.network.build_network import Network
from berth.images.pins.parts import effects
from berth.images.build.plan import Base, BuildPlan, Checkout, Provided, build_plan, refusals
from berth.images.build.revision import checkout_problems, read_revision
from berth.images.scratch import DRY_RUNS, SECRETS, scratch_folder


@dataclass(frozen=True)
class BuildOptions:
    """What was asked for: a profile and its parts, a base and a mirror of the user's own, or the lines alone."""

    profile: str
    without: tuple[str, ...] = ()
    base_image: str | None = None
    mirror: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Site:
    """Where builds are prepared: the kit's pins and folder, the folder for secrets, this machine's network and the
    source of files, and whom to tell of a step (`say`) and of the pieces of a download (`show`).
    """

    kit: pins.Pins
    root: Path
    secrets: Path
    network: Network
    source: downloads.FileSource
    say: Callable[[str], None]
    show: Show = lambda *_: None


@dataclass(frozen=True)
class BuildInputs:
    """What the builds of a profile read besides their checkout: the wheels of this machine that locks name, the files
    that are here, and those that are missing.
    """

    wheels: Sequence[Path]
    files: tuple[Path, ...]
    missing: tuple[WantedFile, ...]


@contextmanager
def secrets_folder(*, dry_run: bool) -> Iterator[Path]:
    """A folder for the secrets of one command, gone at its end. That of a dry run stays: the printed lines read it."""
    if dry_run:
        yield pins.CACHE / f"{DRY_RUNS}{token_hex(4)}"
        return
    with scratch_folder(SECRETS, pins.CACHE) as folder:
        yield folder


def prepare(
    kit: pins.Pins,
    images: Sequence[str],
    options: BuildOptions,
    secrets: Path,
    say: Callable[[str], None],
    show: Show = lambda *_: None,
) -> list[BuildPlan]:
    """The plans of these images' builds, with their secrets, wheels, files and base at hand; UserError for what forbids
    them, all of it together. With `dry_run` nothing is fetched or pulled, and what is written is said.
    """
    root, profile = pins.ROOT, kit.profile(options.profile)
    network = build_network.with_profiles_index(build_network.gather(os.environ), profile.torch_index, os.environ)
    source = downloads.FileSource(downloads.mirror(options.mirror), network.ca)
    site = Site(kit, root, secrets, network, source, say, show)
    images = profile.of(images)
    row = profile.without(options.without)
    found = {want: _at_hand(site, want) for want in build_files.of_images(row, images)}
    _refuse_problems(site, images, row, found, options)
    checkout = Checkout(root, pins.version(root), read_revision(root, os.environ, say))
    for line in effects(row, images):
        say(line)
    inputs = plan_inputs(row, images, found, local_wheels(network, row, root))
    provided = (provide_for_paste if options.dry_run else provide)(site, inputs, options.base_image)
    return [build_plan(kit, row, image, checkout, provided) for image in images]


def plan_inputs(
    row: pins.Profile,
    images: Sequence[str],
    found: Mapping[WantedFile, Path | None],
    wheels: Sequence[Path],
) -> BuildInputs:
    """What these images of a profile read, and what of it is missing; found: the files by what they are, None where one
    is not here. Pure.
    """
    wanted = build_files.of_images(row, images)
    here = [path for want in wanted if (path := found[want]) is not None]
    return BuildInputs(wheels, tuple(here), tuple(want for want in wanted if found[want] is None))


def provide(site: Site, inputs: BuildInputs, base_image: str | None) -> Provided:
    """Writes the secrets, links the wheels, fetches the files that are missing, and finds the base."""
    secrets = site.network.write_secrets(site.secrets)
    link_wheels(inputs.wheels, site.root)
    client = engine.connect()  # where none answers, not after a long download
    base = find_base(client, site.kit, base_image, site.say)
    fetched = [site.source.fetch(want, build_files.CACHE, site.say, site.show) for want in inputs.missing]
    link_files([*inputs.files, *fetched], site.root / "docker" / "files", same_content)
    return Provided(base, secrets, site.network.proxies)


def provide_for_paste(site: Site, inputs: BuildInputs, base_image: str | None) -> Provided:
    """Writes the secrets and links the wheels and the files that are here, so that a printed line holds when it is
    pasted, and says each; what would be fetched or pulled is only said.
    """
    secrets = site.network.write_secrets(site.secrets)
    wheels = link_wheels(inputs.wheels, site.root)
    files = link_files(inputs.files, site.root / "docker" / "files", same_content)
    if written := [*map(str, wheels), *map(str, files)]:
        site.say(f"the lines below read these files, which were written for them and stay: {', '.join(written)}")
    if secrets:
        site.say(
            f"the lines below read the settings of this network in {site.secrets}, which may hold passwords: remove it "
            "when you don't need them any more."
        )
    for want in inputs.missing:
        site.say(f"{want.name} is not here: `build` without --dry-run fetches it from {site.source.shown(want)}.")
    base = base_at_hand(site.kit, base_image)
    if base is None:
        reference = base_image or site.kit.base_image
        base = Base(reference, reference.partition("@")[2])
        site.say(f"the base {reference} is not on an engine here: `build` without --dry-run pulls it.")
    return Provided(base, secrets, site.network.proxies)


def local_wheels(network: Network, row: pins.Profile, root: Path) -> list[Path]:
    """The wheels of pip's folders on this machine that a profile's locks name."""
    locks = [path.read_text() for path in sorted((root / "docker" / "locks" / row.name).glob("*.txt"))]
    return build_network.wanted_wheels(network.index.folders, locks)


def link_wheels(wheels: Sequence[Path], root: Path) -> list[Path]:
    """Puts wheels where builds look for them, in the context `root`; their paths there."""
    return link_files(wheels, root / "docker" / "wheels", same_size)


def _at_hand(site: Site, want: WantedFile) -> Path | None:
    """A file in the user's cache, or in docker/files, which a person may fill as well."""
    return build_files.at_hand(want, (build_files.CACHE, site.root / "docker" / "files"), site.say)


def _refuse_problems(
    site: Site,
    images: Sequence[str],
    row: pins.Profile,
    found: Mapping[WantedFile, Path | None],
    options: BuildOptions,
) -> None:
    """UserError with all that forbids the builds: the checkout, the base's name, locks, and files without a hash or out
    of reach.
    """
    locks = site.root / "docker" / "locks"
    refuse(
        checkout_problems(site.root),
        name_problems(options.base_image),
        [reason for image in images for reason in refusals(site.kit, row, image, locks)],
        site.source.missing([want for want, path in found.items() if path is None], ask=not options.dry_run),
    )
