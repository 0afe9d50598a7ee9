"""Reads docker/pins.toml, validates it and returns the objects of `pins`.

`pins_form` is imported only when the file is read: pydantic takes 0.1 s to import, and `--help` does not need it.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from berth.common.errors import UserError
from berth.images.pins.pins import IMAGES, NONE, PATH, PinnedFile, Pins, Profile, SoftwareSet

if TYPE_CHECKING:
    from berth.images.pins.pins_form import FileTable, WholeProfile
    from berth.images.pins.software_form import SoftwareTable


def load(path: Path = PATH) -> Pins:
    """Reads pins.toml; UserError names table and key of everything that is missing, unknown or of the wrong type."""
    from berth.images.pins import pins_form

    try:
        parsed = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}): fix it, or restore it from the repository.") from None
    document = pins_form.checked(parsed, path)
    shared = document.packages.model_dump(by_alias=True)
    files = {key: _file(key, table) for key, table in document.files.items()}
    software = {name: _software(name, table) for name, table in document.software.items()}
    profiles = {
        name: _profile(name, whole, document.base.python, shared, software[whole.table.software], files)
        for name, whole in pins_form.whole_profiles(document).items()
    }
    return Pins(
        base_image=document.base.image,
        imported_base=document.base.imported,
        build_tools=document.build,
        packages=shared,
        source_only={image: tuple(names) for image, names in document.source_only.model_dump().items()},
        files=files,
        software=software,
        profiles=profiles,
    )


def _software(name: str, table: "SoftwareTable") -> SoftwareSet:
    return SoftwareSet(
        name=name,
        images=tuple(image for image in IMAGES if image in table.images),
        packages=table.versions,
        requirements=tuple(table.packages),
        constraints=tuple(table.constraints),
        debian=tuple(table.debian),
        day=table.day,
        environment=table.environment,
    )


def _profile(
    name: str,
    whole: "WholeProfile",
    python: str,
    shared: Mapping[str, str],
    software: SoftwareSet,
    files: Mapping[str, PinnedFile],
) -> Profile:
    table, packages = whole.table, {**shared, **software.packages}
    budget = {image: table.budget.model_dump()[image] for image in software.images}
    return Profile(
        name=name,
        origin=table.from_,
        hardware=whole.hardware,
        python=python,
        software=software,
        torch_index=table.torch_index,
        packages=table.own_packages | {each: version for each, version in packages.items() if version != NONE},
        budget=budget,
        cuda=table.cuda_parts,
        files={part: files[f"{part}-{version}"] for part, version in table.file_parts.items()},
        instances=table.instances.model_dump(),
    )


def _file(key: str, table: "FileTable") -> PinnedFile:
    part, _, version = key.rpartition("-")
    return PinnedFile(
        part,
        version,
        table.name,
        table.url,
        table.sha256,
        torch=table.torch,
        key_url=table.key_url,
        key_fingerprint=table.key_fingerprint.replace(" ", "").upper(),
    )
