"""Programs that tests write, and git without the user's name and settings."""

import os
import subprocess
from pathlib import Path


def shell_program(path: Path, text: str) -> Path:
    """Writes an executable shell script; returns its path."""
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def git(folder: Path, *words: str) -> str:
    """The output of a git command in a folder."""
    someone = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **someone}).stdout
