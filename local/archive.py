"""model.tar.gz: packing what a job left, and getting at a model that is a folder or such an archive.

The files stand at the archive's root, as SageMaker wants them.
"""

import os
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from berth.contract.archive import ArchiveError
from berth.contract.archive import unpack as unpack_archive
from berth.images.errors import UserError

_WEIGHTS = ("*.safetensors", "*.bin")
# Weights hardly shrink: level 1 takes a third of the time of level 9 for the same size within a few percent.
_GZIP_LEVEL = 1


def pack(folders: Sequence[Path], archive: Path) -> Path | None:
    """Writes the files of all `folders` (of one name, the first folder's) to `archive`, aside first and then renamed.

    None, and no archive, if there is no file. Names are sorted and owners left out: the same files give the same list.
    """
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            # A link stays a link: it was made for the container's paths, not for ours.
            if path.is_symlink() or path.is_file():
                files.setdefault(path.relative_to(folder).as_posix(), path)
    if not files:
        return None
    aside = archive.with_name(f".{archive.name}.{os.getpid()}.part")
    try:
        with tarfile.open(aside, "w:gz", compresslevel=_GZIP_LEVEL) as tar:
            for name, path in sorted(files.items()):
                tar.add(path, arcname=name, recursive=False, filter=_without_owner)
        aside.replace(archive)
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"{archive} can't be written ({why}): make room or choose another --output.") from None
    finally:
        aside.unlink(missing_ok=True)
    return archive


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks an archive into the new `folder`, of which nothing is left if that fails."""
    try:
        unpack_archive(archive, folder)
    except ArchiveError as error:
        raise UserError(str(error)) from None
    return folder


def model_folder(model: Path, scratch: Path) -> Path:
    """The folder of a model given as a folder or as an archive, which is unpacked below `scratch`.

    A folder with links that lead out of it (a hub's cache is made of them) is copied there, for in a container, where
    it is mounted alone, they would lead nowhere.
    """
    if not model.exists():
        raise UserError(f"There is no {model}: pass a model folder or a model.tar.gz.")
    if not model.is_dir():
        return unpack(model, scratch / "model")
    home = model.resolve()
    if all(path.resolve().is_relative_to(home) for path in home.rglob("*") if path.is_symlink()):
        return home
    try:
        return Path(shutil.copytree(home, scratch / "model", ignore_dangling_symlinks=True))
    except (OSError, shutil.Error) as error:
        raise UserError(f"The links in {model} can't be followed ({error}): pass a folder of plain files.") from None


def model_home(folder: Path, named: Path) -> Path:
    """Where config.json and the weights stand: `folder`, or the one folder in it. The user calls it `named`."""
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    homes = [home for home in (folder, *inside) if (home / "config.json").is_file()]
    if not homes:
        raise UserError(
            f"{named} holds no config.json: pass a model as save_pretrained writes it (in a job: into SM_MODEL_DIR)."
        )
    with_weights = [home for home in homes if any(next(home.glob(pattern), None) for pattern in _WEIGHTS)]
    if not with_weights:
        raise UserError(f"{named} has a config.json but no weights (*.safetensors or *.bin): put them beside it.")
    return with_weights[0]


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
