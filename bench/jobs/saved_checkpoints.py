"""The checkpoints in a folder, read without berth's own code, and what S3 restores of them.

SageMaker uploads everything that appears in /opt/ml/checkpoints while the job runs, and the job's next start finds all
of it: also deleted checkpoints, and incomplete ones whose upload was cut off when their host was lost.
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
    """The step in a checkpoint's name; 0 if there is none."""
    match = _STEP.match(name)
    return int(match[1]) if match else 0


def find_damage(checkpoint: Path) -> str:
    """Why a checkpoint is incomplete; empty if its manifest and files agree."""
    try:
        files: Mapping[str, Mapping[str, Any]] = json.loads((checkpoint / MANIFEST).read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError) as error:
        return f"no readable {MANIFEST} ({type(error).__name__})"
    if not files:
        return f"{MANIFEST} lists no file"
    for name, listed in files.items():
        try:
            content = (checkpoint / name).read_bytes()
        except OSError as error:
            return f"{name} can't be read ({error.strerror})"
        if len(content) != listed["bytes"]:
            return f"{name} has {len(content)} bytes, not {listed['bytes']}"
        if hashlib.sha256(content).hexdigest() != listed["sha256"]:
            return f"{name} has another sha256 than in {MANIFEST}"
    return ""


def whole(folder: Path) -> list[str]:
    """Names of the complete checkpoints in a checkpoint folder, by step."""
    names = [entry.name for entry in folder.glob("checkpoint-*") if not find_damage(entry)]
    return sorted(names, key=step_of)


def being_written(folder: Path, known: Container[str] = ()) -> str:
    """The name of a folder that is not in `known` and has a first byte but no manifest yet; empty if there is none.

    berth writes checkpoint and manifest in a subfolder of it: .partial-XXXXXXXX/checkpoint-STEP.
    """
    try:
        with os.scandir(folder) as entries:
            new = [entry for entry in entries if entry.name not in known]
    except OSError:
        return ""
    for entry in new:
        if entry.is_dir(follow_symlinks=False) and _is_incomplete(entry.path):
            return entry.name
    return ""


def _is_incomplete(folder: str) -> bool:
    """Whether a folder or its subfolders contain a byte and no manifest."""
    has_data = False
    for parent, _, names in os.walk(folder):
        if MANIFEST in names:
            return False
        for name in names:
            with contextlib.suppress(OSError):  # renamed meanwhile
                has_data = has_data or os.lstat(os.path.join(parent, name)).st_size > 0
    return has_data


class Bucket:
    """S3's copy of the checkpoint folders of all hosts, under one prefix; nothing is deleted in it.

    Of a checkpoint that was incomplete when the job ended, some files are missing and others are cut. spoiled: the
    number of such folders.
    """

    def __init__(self, folder: Path, chances: random.Random) -> None:
        self.folder = folder
        self.spoiled = 0
        self._chances = chances
        folder.mkdir(parents=True)

    def upload(self, hosts: Sequence[Path]) -> None:
        """Copy the hosts' checkpoint folders."""
        for host in hosts:
            for entry in sorted(host.iterdir()) if host.is_dir() else []:
                if not entry.is_dir():
                    continue
                if find_damage(entry):
                    self._upload_in_part(entry)
                else:
                    shutil.copytree(entry, self.folder / entry.name, dirs_exist_ok=True)

    def _upload_in_part(self, entry: Path) -> None:
        self.spoiled += 1
        for file in sorted(path for path in entry.rglob("*") if path.is_file()):
            target = self.folder / entry.name / file.relative_to(entry)
            fate = self._chances.random()
            if fate < 0.3:
                continue
            content = file.read_bytes()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content[: len(content) // 2] if fate < 0.5 else content)

    def restore(self, hosts: Sequence[Path]) -> None:
        """Copy everything to each host, as SageMaker does before a new start."""
        for host in hosts:
            shutil.copytree(self.folder, host, dirs_exist_ok=True)
