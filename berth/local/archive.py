"""model.tar.gz: packs a job's files, and unpacks and checks a model. The files are at the archive's root, as SageMaker
requires.
"""

import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path

from berth.common.errors import UserError
from berth.common.files import atomic_write
from berth.contract import model_files
from berth.contract.archive import ArchiveError, unpack
from berth.contract.served_model import serving_faults
from berth.local import results
from berth.local.links import without_links
from berth.local.paths import is_hub_name, refuse_address

# Weights hardly shrink: level 1 takes a third of the time of level 9 for the same size within a few percent.
_GZIP_LEVEL = 1


def pack(files: Mapping[str, Path], archive: Path) -> Path | None:
    """Writes `files`, name in the archive → regular file, to `archive`, atomically.

    Returns None and writes nothing without files. Names are sorted and owners omitted, for reproducible archives.
    """
    if not files:
        return None
    try:
        with atomic_write(archive) as new, tarfile.open(new, "w:gz", compresslevel=_GZIP_LEVEL) as tar:
            for name, path in sorted(files.items()):
                with results.open_regular(path) as file:
                    tar.addfile(_header(name, os.fstat(file.fileno())), file)
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"{archive} can't be written ({why}): free some space or choose another --output.") from None
    return archive


def check_model(model: Path, from_hub: str = "") -> None:
    """UserError if the model does not exist.

    from_hub: advice, with {name}, that is added if the path looks like a name on the hub; empty for none.
    """
    refuse_address(model)
    if not model.exists():
        hub = f" {from_hub.format(name=model)}" if from_hub and is_hub_name(model) else ""
        raise UserError(f"there is no file or folder {model}: pass a model folder or a model.tar.gz.{hub}")


def model_folder(model: Path, scratch: Path) -> Path:
    """The folder of a model; an archive is unpacked below `scratch`. UserError if the folder is an output folder.

    A folder with links that lead out of it, such as the hub's cache, is copied to `scratch`: in a container only the
    folder is mounted, and the links would lead nowhere.
    """
    check_model(model)
    if not model.is_dir():
        try:
            unpack(model, scratch / "model")
        except ArchiveError as error:
            raise UserError(str(error)) from None
        return scratch / "model"
    inside = model / "model.tar.gz"
    if inside.is_file() and not model_files.model_homes(model) and not (model / "code").is_dir():
        raise UserError(f"{model} holds no model, but {inside} is one: pass that.")
    return without_links(model.resolve(), scratch / "model")


def model_home(folder: Path, named: Path, *, tokenizer: bool = False) -> Path:
    """The folder with the model's files: `folder`, or the only folder in it. UserError if files are missing.

    named: the path as the user gave it, for errors; tokenizer: whether a tokenizer is required.
    """
    faults = model_files.file_faults(folder, named, tokenizer=tokenizer)
    home = model_files.model_home(folder)
    if faults or home is None:
        raise UserError(f"{'; '.join(faults)}.")
    return home


def check_servable(folder: Path, named: Path) -> None:
    """UserError, with the server's sentences, if the server can't use this model. A model with its own code is not
    checked: only the image can do that. named: the path as the user gave it, for errors.
    """
    if any(any((home / "code").rglob("*.py")) for home in (folder, *model_files.model_homes(folder))):
        return
    if faults := serving_faults(folder, named):
        raise UserError(f"{'; '.join(faults)}.")


def _header(name: str, status: os.stat_result) -> tarfile.TarInfo:
    """The header of a regular file, also for hard links, which `tarfile` would store as links."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = status.st_size, int(status.st_mtime), stat.S_IMODE(status.st_mode)
    return member
