"""The tests of built images, as `build.py test` runs them: a line for each; a pass is remembered by the images' ids."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from berth.common.errors import UserError
from berth.common.files import atomic_write, explain_os_errors
from berth.common.image_names import image_name
from berth.images.pins.pins import CACHE, ROOT
from berth.images.selection import SelectedImage

_FOLDER = ROOT / "tests" / "images"
_PASSED = CACHE / "tested"
_PYTEST = [sys.executable, "-m", "pytest", "-q", "-o", "console_output_style=classic", "-p", "berth.images.build.test_lines"]


def command(images: Sequence[str]) -> list[str]:
    """The pytest line for some of the images; all of them bring the tests of builds along."""
    some = [str(_FOLDER / "test_both.py"), *(str(_FOLDER / image) for image in images)]
    return [*_PYTEST, *([str(_FOLDER)] if len(images) > 1 else some)]


def derived_command(kit: str) -> list[str]:
    """The pytest line for an image that somebody built FROM one of the kit's: what it must not have lost by that."""
    files = ["test_both.py", f"{kit}/test_contents.py", *(["train/test_plans.py"] if kit == "train" else [])]
    return [*_PYTEST, "-m", "not kits_own", *(str(_FOLDER / file) for file in files)]


def require_packages() -> None:
    """UserError if what the tests need is not installed here."""
    if not installed():
        raise UserError("the tests' packages are not installed here: run `make setup-tests`, then this again.")


def installed() -> bool:
    """Whether what the tests need is installed here."""
    return importlib.util.find_spec("testinfra") is not None


def passed_on(chosen: Sequence[SelectedImage], folder: Path = _PASSED) -> str:
    """The day on which these tests passed on these very images; empty if they have not."""
    try:
        return (folder / _key(chosen)).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def run(chosen: Sequence[SelectedImage], folder: Path = _PASSED, *, to_stderr: bool = False) -> int:
    """Runs the tests; pytest's exit code. UserError where pytest is not installed.

    chosen: the kit's images of one profile, or one image that was named; to_stderr: for a command whose stdout is its
    result.
    """
    require_packages()
    first = chosen[0]
    words = derived_command(first.kit) if first.derived else command([each.kit for each in chosen])
    out = sys.stderr if to_stderr else None
    code = subprocess.run(words, cwd=ROOT, env={**os.environ, **_variables(first)}, stdout=out).returncode
    if code == 0:
        with explain_os_errors(folder, "the result of the tests"):
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(folder / _key(chosen)) as new:
                new.write_text(f"{datetime.now(UTC):%Y-%m-%d}\n", encoding="utf-8")
    return code


def _variables(first: SelectedImage) -> Mapping[str, str]:
    """By which tests/images/conftest.py finds the images: by profile, or the one that was named."""
    if not first.derived and first.name == image_name(first.kit, first.profile):
        return {"BERTH_PROFILE": first.profile}
    return {"BERTH_PROFILE": first.profile, "BERTH_IMAGE": first.name, "BERTH_IMAGE_KIT": first.kit}


def _key(chosen: Sequence[SelectedImage]) -> str:
    """Names a pass: by the images' ids, how they were tested, and the text of the tests."""
    digest = hashlib.sha256(repr(sorted((each.id, each.kit, each.derived) for each in chosen)).encode())
    for file in sorted(_FOLDER.rglob("*.py")):
        digest.update(file.relative_to(_FOLDER).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]
