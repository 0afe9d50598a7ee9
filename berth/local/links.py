"""Links in a folder that is mounted into a container, where a link out of the folder would lead nowhere.

DVC, git-annex and the Hub's cache keep files elsewhere and link to them. Uploads to S3 follow such links, so a job on
SageMaker sees plain files; here the folder is copied with the files that its links lead to.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from berth.common.errors import UserError
from berth.contract.words import counted, few


def check_links(folder: Path, what: str) -> None:
    """UserError for dangling links, and for links to a folder that they are in; what: the folder's name for the error.

    Hidden files are ignored: tools keep their own records in them.
    """
    links = [path for path in _links(folder) if not any(part[0] == "." for part in path.relative_to(folder).parts)]
    dangling = [f"{path.relative_to(folder)} -> {os.readlink(path)}" for path in links if not path.exists()]
    if dangling:
        raise UserError(
            f"{what} has {counted(len(dangling), 'link')} to files that do not exist ({few(dangling)}): fetch them "
            "(`dvc pull`, `git annex get`), or remove the links."
        )
    if loop := next(filter(_loops, links), None):
        raise UserError(f"{what} has the link {loop.relative_to(folder)} to a folder that it is in: remove it.")


def leads_out(folder: Path) -> bool:
    """Whether any link in the folder would dangle if the folder were moved alone."""
    home = folder.resolve()

    def stays(link: Path) -> bool:
        target = os.readlink(link)
        next_hop = Path(os.path.normpath(link.parent.resolve() / target))
        return not os.path.isabs(target) and next_hop.is_relative_to(home) and link.resolve().is_relative_to(home)

    return not all(map(stays, _links(folder)))


def without_links(folder: Path, copy: Path) -> Path:
    """The folder itself if no link leads out of it; otherwise `copy`, a copy with files in place of links."""
    if not folder.is_dir() or not leads_out(folder):
        return folder
    return copy_folder(folder, copy)


def copy_folder(folder: Path, copy: Path, *patterns: str) -> Path:
    """Copies the folder to `copy`, with files in place of links. Dangling links, and names that match a pattern, are
    omitted.
    """
    unwanted = shutil.ignore_patterns(*patterns)

    def ignored(at: str, names: list[str]) -> set[str]:
        # copytree's own ignore_dangling_symlinks also drops valid relative links (Python 3.11 to 3.13).
        return {*unwanted(at, names), *(name for name in names if not Path(at, name).exists())}

    try:
        return Path(shutil.copytree(folder, copy, ignore=ignored, dirs_exist_ok=True))
    except (OSError, shutil.Error) as error:
        raise UserError(
            f"{folder} can't be copied ({error}): pass a folder whose files can all be read, or free some space."
        ) from None


def _links(folder: Path) -> Iterator[Path]:
    """Every link in the folder and in the folders that its links lead to."""
    for at, folders, names in os.walk(folder):
        for path in (Path(at, name) for name in sorted([*folders, *names])):
            if path.is_symlink():
                yield path
                if path.is_dir() and not _loops(path):
                    yield from _links(path)


def _loops(link: Path) -> bool:
    return link.parent.resolve().is_relative_to(link.resolve())
