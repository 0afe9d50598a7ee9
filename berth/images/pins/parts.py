"""The parts of an image that are not packages, such as EFA, and the effects of leaving one out. Pure."""

from collections.abc import Iterable, Sequence

from berth.images.pins.pins import FILE_PARTS, UNPINNED, PinnedFile, Profile


def split_parts(options: Iterable[str]) -> tuple[str, ...]:
    """The parts in a repeatable option, each value with one or more: `efa,smddp`."""
    return tuple(part for option in options for part in option.split(",") if part)


def parts_of(images: Sequence[str]) -> list[str]:
    """The parts that any of these images may have, each once."""
    return list(dict.fromkeys(part for image in images for part in FILE_PARTS[image]))


def files_of(profile: Profile, images: Sequence[str]) -> list[PinnedFile]:
    """The files of these images' parts."""
    return [profile.files[part] for part in parts_of(images) if part in profile.files]


def file_problems(profile: Profile, images: Sequence[str]) -> list[str]:
    """Why files of these images can't be used, a sentence each: no hash is pinned, or they need another torch."""
    problems = []
    for file in files_of(profile, images):
        if file.sha256 == UNPINNED:
            problems.append(
                f"{file.part} {file.version} of profile {profile.name} has no sha256 in docker/pins.toml: run `python "
                f"build.py pins --fetch {file.key}`, which downloads it and records its hash, or build with --without "
                f"{file.part}."
            )
        if file.torch and file.torch != profile.torch:
            problems.append(
                f"{file.part} {file.version} is built for torch {file.torch}, and profile {profile.name} has torch "
                f"{profile.torch}: change one of the two in docker/pins.toml, or build with --without {file.part}."
            )
    return problems


def effects(profile: Profile, images: Sequence[str]) -> list[str]:
    """The effects of missing parts in an image for GPUs, a line per part."""
    effect = {
        "efa": "NCCL uses TCP between hosts",
        "smddp": "requests for smddp use NCCL",
        "gdrcopy": "CUDA copies small messages"
        + (", and SMDDP, which needs it, may not load" if "smddp" in profile.files else ""),
        "cuda-compat": "the host's driver is used as it is",
    }
    missing = [part for part in parts_of(images) if part not in profile.files]
    return [f"no {part}: {effect[part]}" for part in missing if profile.cuda]
