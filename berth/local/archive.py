"""model.tar.gz: packing what a job left, and getting at a model that is a folder or such an archive.

The files stand at the archive's root, as SageMaker wants them.
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
    """Writes `files`, name in the archive → regular file, to `archive`, whole or not at all.

    None, and no archive, if there is no file. Names are sorted and owners left out: the same files give the same list.
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
    """Refuses a model that is not there.

    from_hub: what to do where a name of the hub was meant, with {name} for it; empty where nothing helps.
    """
    refuse_address(model)
    if not model.exists():
        hub = f" {from_hub.format(name=model)}" if from_hub and is_hub_name(model) else ""
        raise UserError(f"there is no file or folder {model}: pass a model folder or a model.tar.gz.{hub}")


def model_folder(model: Path, scratch: Path) -> Path:
    """The folder of a model given as a folder or as an archive, which is unpacked below `scratch`.

    A folder with links that lead out of it (a hub's cache is made of them) is copied there, for in a container, where
    it is mounted alone, they would lead nowhere.
    """
    check_model(model)
    if not model.is_dir():
        try:
            unpack(model, scratch / "model")
        except ArchiveError as error:
            raise UserError(str(error)) from None
        return scratch / "model"
    return without_links(model.resolve(), scratch / "model")


def model_home(folder: Path, named: Path, *, tokenizer: bool = False) -> Path:
    """The folder of the model: `folder`, or the one folder in it. UserError, by the name that the user calls it, if
    parts of it are missing; tokenizer: whether that is one of them.
    """
    faults = model_files.file_faults(folder, named, tokenizer=tokenizer)
    home = model_files.model_home(folder)
    if faults or home is None:
        raise UserError(f"{'; '.join(faults)}.")
    return home


def check_servable(folder: Path, named: Path) -> None:
    """UserError for a model that the server can't answer with, in the server's own words, unless it brings code of its
    own, which only the image can judge; named: what the user calls it.
    """
    if any(any((home / "code").rglob("*.py")) for home in (folder, *model_files.model_homes(folder))):
        return
    if faults := serving_faults(folder, named):
        raise UserError(f"{'; '.join(faults)}.")


def _header(name: str, status: os.stat_result) -> tarfile.TarInfo:
    """A plain file's, also of one with several names: `tarfile` would make hard links of them."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = status.st_size, int(status.st_mtime), stat.S_IMODE(status.st_mode)
    return member
