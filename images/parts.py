"""The parts of an image that come as files of their own, such as EFA: which a build has, which it lacks, and why. Pure.

A part that can't be had is left out with a line, unless the user asked for it: by `--with`, by `required` in the
profile's row of pins.toml, or by `--strict` for all that the row has. Then the build is refused.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from berth.common import labels
from berth.common.errors import refuse
from berth.images.pins import FILE_PARTS, UNPINNED, Profile


@dataclass(frozen=True)
class PartOptions:
    """What the command line says of the parts: which must be there, which are left out, and whether all must be."""

    required: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    strict: bool = False

    def row(self, profile: Profile, images: Sequence[str]) -> Profile:
        """The profile without what is left out by request; UserError for parts that the images or the row lack."""
        refuse(self._problems(profile, images))
        return profile.without(self.without)

    def asked_for(self, row: Profile) -> frozenset[str]:
        """The parts of that row without which nothing is built; --without goes before what pins.toml requires."""
        asked = row.files if self.strict else (*self.required, *row.required)
        return frozenset(part for part in asked if part in row.files)

    def _problems(self, profile: Profile, images: Sequence[str]) -> Iterable[str]:
        known = parts_of(images)
        for part in self.required:
            if part not in FILE_PARTS["train"]:
                yield f"there is no part {part!r} to build with: name one of {', '.join(FILE_PARTS['train'])}."
            elif part in self.without:
                yield f"--with {part} and --without {part} contradict each other: give one of them."
            elif part not in known:
                yield f"{part} is no part of {' or '.join(images)}: leave out --with {part}."
            elif part not in profile.files:
                yield (
                    f"profile {profile.name} has no {part}: leave out --with {part}, or give the row one in "
                    "docker/pins.toml."
                )


@dataclass(frozen=True)
class MissingPart:
    """Why a part can't be had, what to do about it, and the word for it in the label of an image without it."""

    part: str
    word: str
    reason: str
    remedy: str

    @property
    def refusal(self) -> str:
        return f"{self.reason}: {self.remedy}, or build with --without {self.part}."

    @property
    def advice(self) -> str:
        """What follows the line that says that the part is left out."""
        return f"{self.reason}; to have it, {self.remedy}, and build again"


def words_of(options: Iterable[str]) -> tuple[str, ...]:
    """The parts that an option names, given many times or with commas: `efa,smddp`."""
    return tuple(part for option in options for part in option.split(",") if part)


def parts_of(images: Sequence[str]) -> list[str]:
    """The parts that any of these images has, each once."""
    return list(dict.fromkeys(part for image in images for part in FILE_PARTS[image]))


def unpinned(profile: Profile, images: Sequence[str]) -> list[MissingPart]:
    """The parts whose file has no sha256 yet, so that nothing proves it."""
    files = [profile.files[part] for part in parts_of(images) if part in profile.files]
    return [
        MissingPart(
            file.part,
            labels.UNPINNED,
            f"{file.part} {file.version} of profile {profile.name} has no sha256 in docker/pins.toml",
            f"run `python build.py pins --fetch {file.key}`, which downloads it and records its hash",
        )
        for file in files
        if file.sha256 == UNPINNED
    ]


def drop_parts(profile: Profile, lacks: Iterable[MissingPart], asked_for: Collection[str]) -> tuple[Profile, list[str]]:
    """The profile without the parts that can't be had, and the refusals of those among them that were asked for."""
    lacks = list(lacks)
    refusals = [lack.refusal for lack in lacks if lack.part in asked_for]
    for lack in lacks:
        profile = profile.without([lack.part], lack.word)
    return profile, refusals


def left_out(profile: Profile, images: Sequence[str], lacks: Iterable[MissingPart] = ()) -> list[str]:
    """What images for GPUs go without, and what that means, a line each; nothing of it concerns one for CPUs."""
    advice: dict[str, str] = {}
    for lack in lacks:
        advice.setdefault(lack.part, lack.advice)
    means: Mapping[str, str] = {
        "efa": "NCCL over TCP between hosts",
        "smddp": "smddp requests run on NCCL",
        "gdrcopy": "CUDA copies small messages"
        + (", and SMDDP, which asks for it, may not load" if "smddp" in profile.files else ""),
        "cuda-compat": "the host's driver is used as it is",
    }
    return [
        f"{part}: left out, {means[part]}" + (f" ({advice[part]})" if part in advice else "")
        for part in parts_of(images)
        if part not in profile.files and (profile.cuda or part in advice)
    ]
