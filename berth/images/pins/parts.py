"""The parts of an image that come as files of their own, such as EFA, and what an image does without one. Pure."""

from collections.abc import Iterable, Sequence

from berth.images.pins.pins import FILE_PARTS, UNPINNED, PinnedFile, Profile


def split_parts(options: Iterable[str]) -> tuple[str, ...]:
    """The parts that an option names, given many times or with commas: `efa,smddp`."""
    return tuple(part for option in options for part in option.split(",") if part)


def parts_of(images: Sequence[str]) -> list[str]:
    """The parts that any of these images may have, each once."""
    return list(dict.fromkeys(part for image in images for part in FILE_PARTS[image]))


def files_of(profile: Profile, images: Sequence[str]) -> list[PinnedFile]:
    """The files of these images' parts."""
    return [profile.files[part] for part in parts_of(images) if part in profile.files]


def file_problems(profile: Profile, images: Sequence[str]) -> list[str]:
    """Why files of these images can't be used, a sentence each: no hash is pinned, or another torch is meant."""
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
    """What an image for GPUs does without a part, a line each part."""
    means = {
        "efa": "NCCL uses TCP between hosts",
        "smddp": "requests for smddp use NCCL",
        "gdrcopy": "CUDA copies small messages"
        + (", and SMDDP, which asks for it, may not load" if "smddp" in profile.files else ""),
        "cuda-compat": "the host's driver is used as it is",
    }
    missing = [part for part in parts_of(images) if part not in profile.files]
    return [f"no {part}: {means[part]}" for part in missing if profile.cuda]
