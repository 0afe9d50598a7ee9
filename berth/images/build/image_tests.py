"""The tests that an image has to pass before it is pushed: contents, imports, ranks and answers, in a few minutes.

They need pytest and testinfra, and no torch. `make image-tests` runs all tests of images. A pass is remembered by the
images' ids.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from berth.common.files import atomic_write, explain_os_errors
from berth.common.image_names import image_name
from berth.images.pins.pins import CACHE, ROOT
from berth.images.selection import SelectedImage

_FOLDER = ROOT / "tests" / "images"
_FILES = {
    "train": ("train/test_contents.py", "train/test_plans.py"),
    "serve": ("serve/test_contents.py", "serve/test_answers.py"),
}
_PASSED = CACHE / "tested"
_PYTEST = [sys.executable, "-m", "pytest", "-q", "-o", "console_output_style=classic", "-p", "berth.images.build.test_lines"]


def command(images: Sequence[str], *, derived: bool = False) -> list[str]:
    """The pytest line for some of the images; `derived`: somebody built the image FROM one of the kit's."""
    files = ["test_both.py", *(file for image in images for file in _FILES[image])]
    return [*_PYTEST, *(["-m", "not kits_own"] if derived else []), *(str(_FOLDER / file) for file in files)]


def passed_on(chosen: Sequence[SelectedImage], folder: Path = _PASSED) -> str:
    """The day on which these tests passed on these very images; empty if they have not."""
    try:
        return (folder / _key(chosen)).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def run(chosen: Sequence[SelectedImage], folder: Path = _PASSED, *, to_stderr: bool = False) -> int:
    """Runs the tests; pytest's exit code.

    chosen: the kit's images of one profile, or one image that was named; to_stderr: for a command whose stdout is its
    result.
    """
    first = chosen[0]
    words = command([each.kit for each in chosen], derived=first.derived)
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
