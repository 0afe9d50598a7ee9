"""What a checkpoint folder holds, read without the kit's own code, and what S3 brings back of it.

SageMaker uploads whatever appears in /opt/ml/checkpoints while the job runs, and a next start of the job finds all of
it there again: also what had been deleted, and what had been half written, or half uploaded, when its host ended.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

MANIFEST = "berth_checkpoint.json"
_STEP = re.compile(r"checkpoint-(\d+)")


def step_of(name: str) -> int:
    """The step in a checkpoint's name; 0 for a folder that has none."""
    found = _STEP.match(name)
    return int(found[1]) if found else 0


def torn(checkpoint: Path) -> str:
    """What is wrong with a checkpoint; empty for one whose manifest and files agree."""
    try:
        files: Mapping[str, Mapping[str, Any]] = json.loads((checkpoint / MANIFEST).read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError) as error:
        return f"no readable {MANIFEST} ({type(error).__name__})"
    if not files:
        return f"{MANIFEST} names no file"
    for name, said in files.items():
        try:
            content = (checkpoint / name).read_bytes()
        except OSError as error:
            return f"{name} can't be read ({error.strerror})"
        if len(content) != said["bytes"]:
            return f"{name} has {len(content)} bytes, not {said['bytes']}"
        if hashlib.sha256(content).hexdigest() != said["sha256"]:
            return f"{name} has another sha256 than {MANIFEST} says"
    return ""


def whole(folder: Path) -> list[str]:
    """Names of the whole checkpoints in a checkpoint folder, by step."""
    found = [entry.name for entry in folder.glob("checkpoint-*") if not torn(entry)]
    return sorted(found, key=step_of)


def being_written(folder: Path, known: Container[str] = ()) -> str:
    """A folder there, none of the `known` ones, that has a first byte and no manifest yet; empty if there is none.

    The kit writes in a folder inside that one, .partial-XXXXXXXX/checkpoint-STEP, the manifest as well.
    """
    try:
        with os.scandir(folder) as entries:
            new = [entry for entry in entries if entry.name not in known]
    except OSError:
        return ""
    for entry in new:
        if entry.is_dir(follow_symlinks=False) and _begun(entry.path):
            return entry.name
    return ""


def _begun(folder: str) -> bool:
    """Whether there is a byte in a folder or below it, and no manifest."""
    begun = False
    for parent, _, names in os.walk(folder):
        if MANIFEST in names:
            return False
        for name in names:
            with contextlib.suppress(OSError):  # renamed meanwhile
                begun = begun or os.lstat(os.path.join(parent, name)).st_size > 0
    return begun


class Bucket:
    """What S3 keeps of a job's checkpoint folders, all hosts' under one prefix; nothing is deleted in it.

    Of what was still being written when the job ended, some files never came, and others came in part: `spoiled` counts
    such folders.
    """

    def __init__(self, folder: Path, chances: random.Random) -> None:
        self.folder = folder
        self.spoiled = 0
        self._chances = chances
        folder.mkdir(parents=True)

    def upload(self, hosts: Sequence[Path]) -> None:
        """Take what the hosts' checkpoint folders hold."""
        for host in hosts:
            for entry in sorted(host.iterdir()) if host.is_dir() else []:
                if not entry.is_dir():
                    continue
                if torn(entry):
                    self._upload_in_part(entry)
                else:
                    shutil.copytree(entry, self.folder / entry.name, dirs_exist_ok=True)

    def _upload_in_part(self, entry: Path) -> None:
        self.spoiled += 1
        for file in sorted(path for path in entry.rglob("*") if path.is_file()):
            there = self.folder / entry.name / file.relative_to(entry)
            fate = self._chances.random()
            if fate < 0.3:
                continue
            content = file.read_bytes()
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(content[: len(content) // 2] if fate < 0.5 else content)

    def restore(self, hosts: Sequence[Path]) -> None:
        """Bring all of it to each host, as a new start of the job finds it."""
        for host in hosts:
            shutil.copytree(self.folder, host, dirs_exist_ok=True)
