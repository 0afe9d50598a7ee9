"""Runs the tests of built images, with a line per test. A pass is remembered by the images' ids."""

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
_PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-o",
    "console_output_style=classic",
    "-p",
    "berth.images.build.test_lines",
]


def command(images: Sequence[str]) -> list[str]:
    """The pytest command for some images; for all of them it includes the tests of builds."""
    some = [str(_FOLDER / "test_both.py"), *(str(_FOLDER / image) for image in images)]
    return [*_PYTEST, *([str(_FOLDER)] if len(images) > 1 else some)]


def derived_command(image: str) -> list[str]:
    """The pytest command for an image that a user built FROM berth's: tests of what it must still have."""
    files = ["test_both.py", f"{image}/test_contents.py", *(["train/test_plans.py"] if image == "train" else [])]
    return [*_PYTEST, "-m", "not kits_own", *(str(_FOLDER / file) for file in files)]


def require_packages() -> None:
    """UserError if the packages for the tests are not installed."""
    if not installed():
        raise UserError("the packages for the tests are not installed: run `make setup-tests`, then try again.")


def installed() -> bool:
    """Whether the packages for the tests are installed."""
    return importlib.util.find_spec("testinfra") is not None


def passed_on(selected: Sequence[SelectedImage], folder: Path = _PASSED) -> str:
    """The day on which these tests passed on exactly these images; empty if they have not."""
    try:
        return (folder / _key(selected)).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def run(selected: Sequence[SelectedImage], folder: Path = _PASSED, *, to_stderr: bool = False) -> int:
    """Runs the tests; returns pytest's exit code. UserError if the packages for the tests are not installed.

    selected: berth's images of one profile, or one named image; to_stderr: for commands that print a result to stdout.
    """
    require_packages()
    first = selected[0]
    words = derived_command(first.image) if first.derived else command([each.image for each in selected])
    out = sys.stderr if to_stderr else None
    code = subprocess.run(words, cwd=ROOT, env={**os.environ, **_variables(first)}, stdout=out).returncode
    if code == 0:
        with explain_os_errors(folder, "the result of the tests"):
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(folder / _key(selected)) as new:
                new.write_text(f"{datetime.now(UTC):%Y-%m-%d}\n", encoding="utf-8")
    return code


def _variables(first: SelectedImage) -> Mapping[str, str]:
    """The variables that tell tests/images/conftest.py which images to test: a profile's, or the named one."""
    if not first.derived and first.name == image_name(first.image, first.profile):
        return {"BERTH_PROFILE": first.profile}
    return {"BERTH_PROFILE": first.profile, "BERTH_IMAGE": first.name, "BERTH_IMAGE_KIT": first.image}


def _key(selected: Sequence[SelectedImage]) -> str:
    """The file name of a pass: a hash of the images' ids, the kind of test, and the text of the tests."""
    digest = hashlib.sha256(repr(sorted((each.id, each.image, each.derived) for each in selected)).encode())
    for file in sorted(_FOLDER.rglob("*.py")):
        digest.update(file.relative_to(_FOLDER).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]
