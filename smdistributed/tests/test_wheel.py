"""The package by itself: its imports, its version, and the wheel that setuptools builds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from bench import code_metrics
from berth import smdistributed
from berth.images.pins import pins
from berth.smdistributed import dataparallel, modelparallel
from berth.train.startup import smdistributed_finder

FOLDER = Path("smdistributed")
PACKAGE = FOLDER / "src" / "smdistributed"
HALVES = {"smdistributed.dataparallel", "smdistributed.modelparallel"}
ALLOWED = {"torch", "numpy", *sys.stdlib_module_names}
SOURCES = [each for each in code_metrics.sources(pins.ROOT) if each.path.is_relative_to(PACKAGE)]


def test_library_imports_nothing_of_berth() -> None:
    imports = [each for each in code_metrics.imports(SOURCES) if not each.module.startswith(".")]
    assert len(imports) > 20
    foreign = [f"{each.where}: {each.module}" for each in imports if each.module.partition(".")[0] not in ALLOWED]
    assert not foreign, "\n".join(foreign)


def test_both_halves_share_only_what_the_finder_supplies() -> None:
    """If AWS's wheel supplies one half, berth's finder supplies the other half and these, and nothing else."""
    shared = set()
    for each in code_metrics.imports(SOURCES):
        dots = len(each.module) - len(each.module.lstrip("."))
        depth = len(Path(each.where.partition(":")[0]).relative_to(PACKAGE).parts)
        shared |= {each.module.lstrip(".")} if dots >= depth > 1 else set()
    assert {f"{PACKAGE.name}.{each}" for each in shared} | HALVES == set(smdistributed_finder.PARTS)


def test_versions_end_with_berth() -> None:
    for each in (smdistributed, dataparallel, modelparallel):
        assert each.OPEN
        assert each.__version__.endswith("+berth")


@pytest.mark.slow
def test_wheel_is_built_by_setuptools_and_imported(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(pins.ROOT / FOLDER, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]
    make = [*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(make, check=True, timeout=120)
    (wheel,) = tmp_path.glob("berth_smdistributed-*+berth-py3-none-any.whl")
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.endswith(".py")}
    assert packed == {str(each.path.relative_to(PACKAGE.parent)) for each in SOURCES}
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", *alone, "--target", str(installed), str(wheel)], check=True, timeout=120)
    code = """
import smdistributed.dataparallel.torch.torch_smddp, smdistributed.modelparallel.torch, torch.distributed
print(smdistributed.__file__, torch.distributed.Backend.SMDDP)
"""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(installed)}
    command = [sys.executable, "-P", "-c", code]
    process = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, timeout=120)
    assert process.stdout == f"{installed}/smdistributed/__init__.py smddp\n", process.stderr
    smddprun = subprocess.run(
        [installed / "bin" / "smddprun", "--help"], env=environ, capture_output=True, text=True, timeout=60
    )
    assert smddprun.stdout == "usage: smddprun COMMAND …, as in: mpirun -np 2 smddprun python train.py\n"
