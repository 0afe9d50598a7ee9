"""The package `berth`: its folders, its links to folders of the top level, and wheels with regular files.

It needs neither an installation nor a list of packages: a new file or subpackage is included automatically.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from berth.images.pins import pins

LINKS = {"ecr": "ecr", "serve": "serve", "smdistributed": "smdistributed/src/smdistributed", "train": "train"}
"""Folder of the package → folder with its files."""
FOLDERS = sorted(path.parent.name for path in (pins.ROOT / "berth").glob("*/__init__.py"))
DATA = (".html", ".json", ".pth", "py.typed")


def tracked() -> list[str]:
    """Every file of this checkout, also uncommitted ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=pins.ROOT, capture_output=True, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (pins.ROOT / name).exists()]


def copy(names: list[str], target: Path) -> Path:
    """Copies files to `target` like a clone: links stay links."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(pins.ROOT / name, target / name, follow_symlinks=False)
    return target


def build_wheel(source: Path, target: Path) -> dict[str, zipfile.ZipInfo]:
    """The members, by name and without dist-info, of the wheel that the images' build command makes."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(target), "."], cwd=source, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return {each.filename: each for each in opened.infolist() if ".dist-info/" not in each.filename}


def packaged(name: str, links: Mapping[str, str] = LINKS) -> str:
    """The name in a wheel of a file of the checkout; empty unless it is a module, or data that a module reads."""
    path = PurePosixPath(name)
    if path.suffix != ".py" and not path.name.endswith(DATA):
        return ""
    if path.is_relative_to("berth"):
        return name
    for link, folder in links.items():
        if path.is_relative_to(folder):
            return str("berth" / PurePosixPath(link) / path.relative_to(folder))
    return ""


def test_links_are_relative() -> None:
    found = {path.name: str(path.readlink()) for path in (pins.ROOT / "berth").iterdir() if path.is_symlink()}
    assert found == {name: f"../{folder}" for name, folder in LINKS.items()}


@pytest.mark.slow
def test_wheel_of_a_clone_contains_every_module_as_a_regular_file(tmp_path: Path) -> None:
    wheel = build_wheel(copy(tracked(), tmp_path / "clone"), tmp_path / "dist")
    assert sorted(wheel) == sorted(filter(None, map(packaged, tracked())))
    assert {f"berth/{folder}/py.typed" for folder in FOLDERS if folder != "smdistributed"} <= set(wheel)
    assert {each.external_attr >> 28 for each in wheel.values()} == {0o10}, "all members are regular files"
    plan = "train/planning/plan.py"
    assert wheel[f"berth/{plan}"].file_size == (pins.ROOT / plan).stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("image", pins.IMAGES)
def test_wheel_of_an_image_contains_only_its_folders(image: str, tmp_path: Path) -> None:
    """The wheel is built from the files that .dockerignore lets through and the stage `kit-…` copies."""
    stage = (pins.ROOT / "docker/Dockerfile").read_text().partition(f" AS kit-{image}\n")[2].partition("\nFROM ")[0]
    lines = (pins.ROOT / ".dockerignore").read_text().splitlines()
    sent = tuple(line[1:] for line in lines if line.startswith("!"))
    names = [name for name in tracked() if any(PurePosixPath(name).is_relative_to(path) for path in sent)]
    kit = tmp_path / "kit"
    for line in re.findall(r"^COPY (.*)$", stage, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            for name in names:
                if PurePosixPath(name).is_relative_to(source):
                    place = kit / target / (PurePosixPath(name).relative_to(source) if name != source else name)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(pins.ROOT / name, place)
    wheel = build_wheel(kit, tmp_path / "dist")
    own = {"berth/__init__.py", *(f"berth/{name}" for name in ("contract", "qa", "runtime", image))}
    whole = filter(None, map(packaged, tracked()))
    assert sorted(wheel) == sorted(
        name for name in whole if any(PurePosixPath(name).is_relative_to(each) for each in own)
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_packages_are_importable_without_installation(folder: str, tmp_path: Path) -> None:
    """Imports work without site-packages, so without `make setup`; `__file__` is the edited file."""
    code = f"import berth.{folder} as found; print(found.__file__)"
    command = [sys.executable, "-S", "-P", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(pins.ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).resolve() == (pins.ROOT / "berth" / folder / "__init__.py").resolve()


def test_tracebacks_name_the_edited_file(tmp_path: Path) -> None:
    code = "from berth.qa import spans"  # fails: numpy is missing without site-packages
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(pins.ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (path,) = re.findall(r'File "(.*spans\.py)", line \d+', done.stderr)
    assert Path(path).resolve() == pins.ROOT / "berth" / "qa" / "spans.py"
