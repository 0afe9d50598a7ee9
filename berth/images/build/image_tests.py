"""The tests that an image has to pass before it is pushed: contents, imports, ranks and answers, in a few minutes.

They need pytest and testinfra, and no torch. `make image-tests` runs all tests of images. A pass is remembered by the
images' ids.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from berth.common.image_names import image_name
from berth.common.kept import Kept, answer_key
from berth.images.local_image import LocalImage
from berth.images.pins.pins import CACHE, ROOT

_FOLDER = ROOT / "tests" / "images"
_FILES = {
    "train": ("train/test_contents.py", "train/test_plans.py"),
    "serve": ("serve/test_contents.py", "serve/test_answers.py"),
}
_PASSED = CACHE / "tested"
_KEPT = 200
# A line for each test with its name and duration: the tests take minutes, and dots don't show which one is running.
_PYTEST = [sys.executable, "-m", "pytest", "--verbose", "-o", "console_output_style=times"]


def command(images: Sequence[str], *, derived: bool = False) -> list[str]:
    """The pytest line for some of the images; `derived`: somebody built the image FROM one of the kit's."""
    files = ["test_both.py", *(file for image in images for file in _FILES[image])]
    return [*_PYTEST, *(["-m", "not kits_own"] if derived else []), *(str(_FOLDER / file) for file in files)]


def passed_on(selected: Sequence[LocalImage], folder: Path = _PASSED) -> str:
    """The day on which these tests passed on exactly these images; empty if they have not."""
    return str(Kept(folder, _KEPT).load(_key(selected)) or "")


def run(selected: Sequence[LocalImage], folder: Path = _PASSED, *, to_stderr: bool = False) -> int:
    """Runs the tests; returns pytest's exit code.

    selected: berth's images of one profile, or one named image; to_stderr: for commands that print a result to stdout.
    """
    first = selected[0]
    words = command([each.image for each in selected], derived=first.derived)
    out = sys.stderr if to_stderr else None
    code = subprocess.run(words, cwd=ROOT, env={**os.environ, **_variables(first)}, stdout=out).returncode
    if code == 0:
        Kept(folder, _KEPT).store(_key(selected), f"{datetime.now(UTC):%Y-%m-%d}")
    return code


def _variables(first: LocalImage) -> Mapping[str, str]:
    """The variables that tell tests/images/conftest.py which images to test: a profile's, or the named one."""
    if not first.derived and first.name == image_name(first.image, first.profile):
        return {"BERTH_PROFILE": first.profile}
    return {"BERTH_PROFILE": first.profile, "BERTH_IMAGE": first.name, "BERTH_IMAGE_KIT": first.image}


def _key(selected: Sequence[LocalImage]) -> str:
    """A hash of the images' ids, the kind of test, and the text of the tests."""
    images = sorted((each.id, each.image, each.derived) for each in selected)
    tests = [(str(file.relative_to(_FOLDER)), file.read_bytes()) for file in sorted(_FOLDER.rglob("*.py"))]
    return answer_key(images, tests)
