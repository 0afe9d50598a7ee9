"""The commit of the checkout, whether it has uncommitted changes, and problems that prevent any build."""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from berth.common.errors import UserError
from berth.images.build.plan import Revision

COMMIT_VARIABLES = ("BERTH_REVISION", "CODEBUILD_RESOLVED_SOURCE_VERSION", "GITHUB_SHA", "CI_COMMIT_SHA")
"""Variables with the commit of a checkout without .git: berth's, then those of CodeBuild, GitHub and GitLab."""
NO_COMMIT = "none"
"""Used as the commit if it is unknown."""
_COMMIT = re.compile(r"[0-9a-f]{12,64}", re.IGNORECASE)
_CHECKED_BY_HASH = ("docker/wheels", "docker/files")
"""Files there get into an image only if a lock or docker/pins.toml has their hash, so changes there don't count."""


def read_revision(
    root: Path, environ: Mapping[str, str] = os.environ, say: Callable[[str], None] = lambda _: None
) -> Revision:
    """The commit of the checkout in `root`, and whether a file that a build reads differs from it. Without a commit in
    git, the one from COMMIT_VARIABLES, else "none" with a warning. UserError if git fails for another reason.
    """
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--short=12", "HEAD")
    if commit:
        kept, ignored = sent_paths((root / ".dockerignore").read_text().splitlines())
        status = ["status", "--porcelain", "-z", "--untracked-files=all", "--ignored", "--no-renames"]
        changed = is_changed(_git(root, *status, "--", *kept), ignored)
        return Revision(commit, changed, _git(root, "show", "-s", "--format=%cI", "HEAD"))
    if named := commit_of(environ):
        return Revision(named)
    say(
        "warning: the commit of this checkout is unknown, so its images are tagged -none, and `push` refuses --tag for "
        "them: clone it with git, or set BERTH_REVISION to its commit."
    )
    return Revision(NO_COMMIT)


def commit_of(environ: Mapping[str, str]) -> str:
    """The first 12 digits of the commit that a variable has; empty without one. CodeBuild's may have another value."""
    own = environ.get(COMMIT_VARIABLES[0])
    if own and not _COMMIT.fullmatch(own):
        raise UserError(f"BERTH_REVISION is {own[:80]!r}, which is not a commit: give at least 12 hexadecimal digits.")
    found = [environ[name] for name in COMMIT_VARIABLES if _COMMIT.fullmatch(environ.get(name, ""))]
    return found[0][:12].lower() if found else ""


def sent_paths(dockerignore: Sequence[str]) -> tuple[list[str], list[str]]:
    """The paths that a build reads and the name patterns that it excludes, from the lines of .dockerignore."""
    kept = [line[1:] for line in dockerignore if line.startswith("!") and line[1:] not in _CHECKED_BY_HASH]
    return [*kept, "docker/Dockerfile", ".dockerignore"], [line[3:] for line in dockerignore if line.startswith("**/")]


def is_changed(status: str, ignored: Iterable[str]) -> bool:
    """Whether `git status --porcelain -z` of a build's paths lists a file that none of these patterns excludes."""
    patterns = list(ignored)
    paths = [PurePosixPath(line[3:]) for line in status.split("\0") if line]
    return any(not any(fnmatch(name, pattern) for name in path.parts for pattern in patterns) for path in paths)


def checkout_problems(root: Path) -> list[str]:
    """Why the files in `root` can't be built, a sentence each: lost links, or Windows line ends."""
    found = []
    if not (root / "berth" / "common").is_dir():
        found.append(
            f"{root / 'berth'} has plain files instead of symbolic links, because the program that unpacked or cloned "
            "it can't make them: clone it with `git clone -c core.symlinks=true`."
        )
    if b"\r\n" in (root / "docker" / "layers" / "common.sh").read_bytes():
        found.append(
            f"{root / 'docker'} has Windows line ends (CRLF), which shells in the images can't read: clone the "
            "repository again with `git clone -c core.autocrlf=false`."
        )
    return found


def _git(root: Path, *words: str) -> str:
    """The output of git; empty without git, without a repository or without a commit. UserError with git's message for
    any other failure, such as a folder that belongs to another user.
    """
    try:
        result = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        return ""
    if result.returncode == 0:
        return result.stdout.rstrip("\n")
    if not result.stderr.strip() or "not a git repository" in result.stderr:
        return ""
    raise UserError(f"git can't read the commit of {root}: {' '.join(result.stderr.split()).removeprefix('fatal: ')}")
