"""What builds need before they begin: decided first, then provided, then planned.

`prepare` goes the whole way: which parts can be had (`parts.py`), what is missing of the rest (`plan_inputs`), bring it
(`provide`, or for a dry run `provide_for_paste`), and the plans (`plan.py`). Refusals come before anything is made.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from berth.common import engine
from berth.common.console import Show
from berth.common.errors import refuse
from berth.common.files import link_files, same_content, same_size
from berth.images import build_files, build_network, dockerfiles, downloads, pins
from berth.images.base import base_at_hand, find_base, name_problems
from berth.images.build import revision
from berth.images.build_files import WantedFile
from berth.images.build_network import Network
from berth.images.parts import PartOptions, drop_parts, left_out, unpinned
from berth.images.plan import Base, BuildPlan, Checkout, Provided, build_plan, refusals


@dataclass(frozen=True)
class BuildOptions:
    """What was asked for: a profile and its parts, a base and a mirror of the user's own, or the lines alone."""

    profile: str
    parts: PartOptions = field(default_factory=PartOptions)
    base_image: str | None = None
    mirror: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Site:
    """Where builds are prepared: the kit's pins and folder, this machine's network and the source of files, and whom to
    tell of a step (`say`) and of the pieces of a download (`show`).
    """

    kit: pins.Pins
    root: Path
    network: Network
    source: downloads.FileSource
    say: Callable[[str], None]
    show: Show = lambda *_: None


@dataclass(frozen=True)
class BuildInputs:
    """What the builds of a profile read besides their checkout: the wheels of this machine that locks name, by the
    profile whose folder they are for, the files that are here, and those that are missing.
    """

    wheels: Mapping[str, Sequence[Path]]
    files: tuple[Path, ...]
    missing: tuple[WantedFile, ...]


def prepare(
    kit: pins.Pins,
    images: Sequence[str],
    options: BuildOptions,
    say: Callable[[str], None],
    show: Show = lambda *_: None,
    root: Path = pins.ROOT,
) -> list[BuildPlan]:
    """The plans of these images' builds, with their secrets, wheels, files and base at hand; UserError for what forbids
    them, all of it together. With `dry_run` nothing is fetched, pulled or made, and what is written is said.
    """
    network = build_network.gather(os.environ)
    source = downloads.FileSource(downloads.mirror(options.mirror), network.ca)
    site = Site(kit, root, network, source, say, show)
    profile = kit.profile(options.profile)
    images = profile.of(images)
    row = options.parts.row(profile, images)
    found = {want: _at_hand(site, want) for want in build_files.of_images(row, images)}
    row = _drop_missing_parts(site, images, row, found, options)
    inputs = plan_inputs(row, images, found, local_wheels(network, row, root))
    provided = (provide_for_paste if options.dry_run else provide)(site, inputs, options.base_image)
    checkout = read_checkout(root)
    return [build_plan(kit, row, image, checkout, provided) for image in images]


def plan_inputs(
    row: pins.Profile,
    images: Sequence[str],
    found: Mapping[WantedFile, Path | None],
    wheels: Mapping[str, Sequence[Path]],
) -> BuildInputs:
    """What these images of a profile read, and what of it is missing; found: the files by what they are, None where one
    is not here. Pure.
    """
    wanted = build_files.of_images(row, images)
    here = [path for want in wanted if (path := found[want]) is not None]
    return BuildInputs(wheels, tuple(here), tuple(want for want in wanted if found[want] is None))


def provide(site: Site, inputs: BuildInputs, base_image: str | None) -> Provided:
    """Writes the secrets, links the wheels, fetches the files that are missing, and finds the base, or makes it."""
    secrets = site.network.write_secrets(pins.CACHE / "secrets")
    link_wheels(inputs.wheels, site.root)
    client = engine.connect()  # where none answers, not after a long download
    fetched = [site.source.fetch(want, build_files.CACHE, site.say, site.show) for want in inputs.missing]
    link_files([*inputs.files, *fetched], site.root / "docker" / "files", same_content)
    base = find_base(client, site.kit, base_image, secrets.get("apt-sources"), site.say)
    return Provided(base, secrets, site.network.proxies)


def provide_for_paste(site: Site, inputs: BuildInputs, base_image: str | None) -> Provided:
    """Writes the secrets and links the wheels and the files that are here, so that a printed line holds when it is
    pasted, and says each; what would be fetched, pulled or made is only said.
    """
    secrets = site.network.write_secrets(pins.CACHE / "secrets", keep_others=True)
    wheels = link_wheels(inputs.wheels, site.root)
    files = link_files(inputs.files, site.root / "docker" / "files", same_content)
    if written := [str(path) for path in (*secrets.values(), *wheels, *files)]:
        site.say(f"the lines below read these files, which were written for them and stay: {', '.join(written)}")
    for want in inputs.missing:
        site.say(f"{want.name} is not here: `build` without --dry-run fetches it from {site.source.shown(want)}.")
    base = base_at_hand(site.kit, base_image)
    if base is None:
        reference = base_image or site.kit.base_image
        base = Base(reference, reference.partition("@")[2])
        make = f", or makes {site.kit.imported_base} by docker/base.sh where no registry answers"
        site.say(
            f"the base {reference} is not on an engine here: `build` without --dry-run pulls it"
            f"{'' if base_image else make}."
        )
    return Provided(base, secrets, site.network.proxies)


def local_wheels(network: Network, row: pins.Profile, root: Path) -> dict[str, list[Path]]:
    """The wheels of pip's folders on this machine that a profile's locks name, and those of the row whose torch layers
    it has, by profile.
    """
    found = {}
    for name in dict.fromkeys((row.hardware, row.name)):
        locks = [path.read_text() for path in sorted((root / "docker" / "locks" / name).glob("*.txt"))]
        found[name] = build_network.wanted_wheels(network.index.folders, locks)
    return found


def link_wheels(wheels: Mapping[str, Sequence[Path]], root: Path) -> list[Path]:
    """Puts wheels where the builds of their profile look for them, in the context `root`; their paths there."""
    folders = {name: root / "docker" / "wheels" / name for name in wheels}
    return [path for name in wheels for path in link_files(wheels[name], folders[name], same_size)]


def read_checkout(root: Path) -> Checkout:
    """The checkout in `root`, as it is now."""
    texts = {image: (root / "docker" / f"{image}.Dockerfile").read_text() for image in pins.IMAGES}
    rendered = {image: dockerfiles.rendered_arguments(text) for image, text in texts.items()}
    return Checkout(root, pins.version(root), revision(root), rendered)


def _at_hand(site: Site, want: WantedFile) -> Path | None:
    """A file in the user's cache, or in docker/files, which a person may fill as well."""
    return build_files.at_hand(want, (build_files.CACHE, site.root / "docker" / "files"), site.say)


def _drop_missing_parts(
    site: Site,
    images: Sequence[str],
    row: pins.Profile,
    found: Mapping[WantedFile, Path | None],
    options: BuildOptions,
) -> pins.Profile:
    """The row without the parts that can't be had, each said in a line; UserError where one of them was asked for, or
    the build can't be for another reason. Who names a mirror has asked for what it is to have.
    """
    missing = [want for want, path in found.items() if path is None]
    unfit = name_problems(options.base_image)
    unfit += [reason for image in images for reason in refusals(site.kit, row, image, site.root / "docker" / "locks")]
    no_hash, unreached = unpinned(row, images), site.source.lacks(missing, ask=not options.dry_run)
    asked_for = options.parts.asked_for(row)
    can_be_had, refused = drop_parts(row, no_hash, asked_for)
    can_be_had, no_file = drop_parts(can_be_had, unreached, row.files if options.mirror else asked_for)
    refuse(unfit, refused, no_file)
    for line in left_out(can_be_had, images, [*no_hash, *unreached]):
        site.say(line)
    return can_be_had
