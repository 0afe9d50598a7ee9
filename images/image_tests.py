"""The tests of built images, run as `build.py test` does."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from berth.common.errors import UserError
from berth.images.pins import ROOT
from berth.images.selection import SelectedImage


def command(images: Sequence[str]) -> list[str]:
    """The pytest line for some of the images; all of them bring the tests of builds along."""
    folder = ROOT / "tests" / "images"
    every = [str(folder)]
    some = [str(folder / "test_both.py"), *(str(folder / image) for image in images)]
    return [sys.executable, "-m", "pytest", "-q", *(every if len(images) > 1 else some)]


def derived_command(kit: str) -> list[str]:
    """The pytest line for an image that somebody built FROM one of the kit's: what it must not have lost by that."""
    folder = ROOT / "tests" / "images"
    files = ["test_both.py", f"{kit}/test_contents.py", *(["train/test_plans.py"] if kit == "train" else [])]
    return [sys.executable, "-m", "pytest", "-q", "-m", "not kits_own", *(str(folder / file) for file in files)]


def run_derived(image: SelectedImage, environ: Mapping[str, str] = os.environ, *, to_stderr: bool = False) -> int:
    """Runs those tests; like `run`."""
    mine = {"BERTH_PROFILE": image.profile, "BERTH_IMAGE": image.name, "BERTH_IMAGE_KIT": image.kit}
    return _run(derived_command(image.kit), {**environ, **mine}, to_stderr=to_stderr)


def installed() -> bool:
    """Whether what the tests need is installed here."""
    return importlib.util.find_spec("testinfra") is not None


def run(
    images: Sequence[str], profile: str, environ: Mapping[str, str] = os.environ, *, to_stderr: bool = False
) -> int:
    """Runs the tests on the images of a profile; pytest's exit code. UserError where pytest is not installed.

    to_stderr: for a command whose stdout is its result.
    """
    return _run(command(images), {**environ, "BERTH_PROFILE": profile}, to_stderr=to_stderr)


def _run(command: Sequence[str], environ: Mapping[str, str], *, to_stderr: bool) -> int:
    if not installed():
        raise UserError("the tests' packages are not installed here: run `make setup-tests`, then this again.")
    out = sys.stderr if to_stderr else None
    return subprocess.run(command, cwd=ROOT, env=environ, stdout=out).returncode
