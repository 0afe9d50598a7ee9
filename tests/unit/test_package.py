"""The package `berth`: its folders stand at the top level, `berth/` holds a link to each, and a wheel holds real files.

Neither an installation nor a list of packages is needed: a new file or subpackage is added by being there.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from berth.images import pins

FOLDERS = sorted(path.name for path in (pins.ROOT / "berth").iterdir())
DATA = (".html", ".json", ".pth", "py.typed")


def tracked() -> list[str]:
    """Every file of this checkout, those that are not committed yet included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=pins.ROOT, capture_output=True, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (pins.ROOT / name).exists()]


def copy(names: list[str], target: Path) -> Path:
    """A clone would hold the same: links stay links."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(pins.ROOT / name, target / name, follow_symlinks=False)
    return target


def build_wheel(source: Path, target: Path) -> dict[str, zipfile.ZipInfo]:
    """The members of the wheel that the images' command makes, by name; dist-info aside."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(target), "."], cwd=source, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return {each.filename: each for each in opened.infolist() if ".dist-info/" not in each.filename}


def belongs(name: str, folders: list[str]) -> bool:
    """Whether a file of the checkout is one of the package's: a module, or data that a module reads."""
    path = PurePosixPath(name)
    return path.parts[0] in folders and (path.suffix == ".py" or path.name.endswith(DATA))


def test_every_folder_is_linked() -> None:
    packages = {path.parent.name for path in pins.ROOT.glob("*/__init__.py")}
    assert set(FOLDERS) == packages, "a new folder gets a link in berth/"
    for name in FOLDERS:
        link = pins.ROOT / "berth" / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / name, "relative, or a clone elsewhere would not find it"


def test_a_wheel_of_a_fresh_clone_holds_every_module_as_a_real_file(tmp_path: Path) -> None:
    wheel = build_wheel(copy(tracked(), tmp_path / "clone"), tmp_path / "dist")
    assert sorted(wheel) == sorted(f"berth/{name}" for name in tracked() if belongs(name, FOLDERS))
    assert {f"berth/{folder}/py.typed" for folder in FOLDERS} <= set(wheel)
    assert {each.external_attr >> 28 for each in wheel.values()} == {0o10}, "regular files, and no links"
    assert wheel["berth/train/plan.py"].file_size == (pins.ROOT / "train/plan.py").stat().st_size


@pytest.mark.parametrize("image", pins.IMAGES)
def test_a_wheel_of_an_images_build_holds_its_own_folders_only(image: str, tmp_path: Path) -> None:
    """What the stage `kit` copies is there, and links to nothing beside it."""
    stage = (pins.ROOT / "docker/Dockerfile").read_text().partition(f" AS kit-{image}\n")[2].partition("\nFROM ")[0]
    copied = [word for line in re.findall(r"^COPY (.*)$", stage, re.MULTILINE) for word in line.split()[:-1]]
    folders = sorted(set(FOLDERS) & {name.rstrip("/") for name in copied})
    assert image in folders
    names = [name for name in tracked() if name in copied or name.partition("/")[0] in [*folders, "berth"]]
    wheel = build_wheel(copy(names, tmp_path / "kit"), tmp_path / "dist")
    assert sorted(wheel) == sorted(f"berth/{name}" for name in tracked() if belongs(name, folders))


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_checkout_needs_no_installation(folder: str, tmp_path: Path) -> None:
    """Without site-packages, and so without what `make setup` installs; `__file__` leads to the file that is edited."""
    code = f"import berth.{folder} as found; print(found.__file__)"
    command = [sys.executable, "-S", "-P", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(pins.ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).resolve() == pins.ROOT / folder / "__init__.py"


def test_a_traceback_leads_to_the_file_that_is_edited(tmp_path: Path) -> None:
    code = "from berth.qa import spans"  # it wants numpy, which is not there without site-packages
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(pins.ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (path,) = re.findall(r'File "(.*spans\.py)", line \d+', done.stderr)
    assert Path(path).resolve() == pins.ROOT / "qa" / "spans.py"
