"""Hints for a missing module: its place in the source folder, or a line for requirements.txt."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.files import write_files
from tests.unit.runtime.hints.programs import remedy_of, run

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "fd"
version = "1"
"""


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("no_such_lightgbm", "the package that contains it (no_such_lightgbm, if it has the same name)"),
        ("no_such_lightgbm.basic", "the package that contains it (no_such_lightgbm, if it has the same name)"),
        ("docx", "the line python-docx"),
        ("umap.plot", "the line umap-learn"),
    ],
)
def test_missing_package_suggests_requirements_line(tmp_path: Path, module: str, line: str) -> None:
    write_files(tmp_path, {"train.py": f"import {module}\n", "other.py": ""})
    assert remedy_of(tmp_path) == f"; add {line} to requirements.txt next to your program"


@pytest.mark.parametrize(
    ("module", "files", "hint"),
    [
        (
            "fraud_detector.data",
            {"pyproject.toml": PROJECT, "src/fraud_detector/__init__.py": "", "src/fraud_detector/data.py": ""},
            '; fraud_detector is in src/ of your source folder and is not installed: put a line "." into '
            "requirements.txt",
        ),
        (
            "fraud_detector",
            {"pyproject.toml": PROJECT, "src/fraud_detector.py": ""},
            '; fraud_detector is in src/ of your source folder and is not installed: put a line "." into '
            "requirements.txt",
        ),
        (
            "fraud_detector",
            {"setup.py": "from setuptools import setup\nsetup(name='x')\n", "src/fraud_detector/__init__.py": ""},
            "; fraud_detector is in src/ of your source folder, and setup.py does not install it: give setup() "
            'package_dir={"": "src"} and packages=find_packages("src")',
        ),
        (
            "rows",
            {"lib/data/rows.py": ""},
            "; rows is in lib/data/ of your source folder, where Python does not look: import it as lib.data.rows, or "
            "set the job's variable PYTHONPATH to {code}/lib/data",
        ),
        (
            "rows",
            {"my-lib/rows.py": ""},
            "; rows is in my-lib/ of your source folder, where Python does not look: set the job's variable PYTHONPATH "
            "to {code}/my-lib",
        ),
        ("helper", {"helpers.py": ""}, "; did you mean your own helpers?"),
        ("utils.rows", {"Utils/rows.py": ""}, "; your source folder has Utils: capitals count, import Utils"),
        ("my_rows", {"my-rows.py": ""}, "; your source folder's my-rows.py can't be imported: rename it to my_rows.py"),
        (
            "own_wheel",
            {"own_wheel-1.0-py3-none-any.whl": ""},
            "; put the line ./own_wheel-1.0-py3-none-any.whl into requirements.txt: the wheel is in your source folder "
            "and not installed",
        ),
        (
            "no_such_lightgbm",
            {"training/requirements.txt": "numpy\nno-such-lightgbm==4.0\n"},
            "; training/requirements.txt lists it, and only the requirements.txt at the top of your source folder is "
            "installed: move it there, or set the job's variable SAGEMAKER_REQUIREMENTS to training/requirements.txt",
        ),
        (
            "own_lines",
            {},
            "; if own_lines is a file of yours, give the job the folder that has it (source_dir, or --code): it got "
            "train.py alone; otherwise add the package that contains it (own_lines, if it has the same name) to "
            "requirements.txt next to your program",
        ),
    ],
)
def test_missing_module_is_first_searched_in_source_folder(
    tmp_path: Path, module: str, files: dict[str, str], hint: str
) -> None:
    write_files(tmp_path, {"train.py": f"import {module}\n", **files})
    assert remedy_of(tmp_path) == hint.replace("{code}", str(tmp_path))


@pytest.mark.slow
def test_dot_in_requirements_installs_src_folder(tmp_path: Path) -> None:
    modules = {"src/fraud_detector/__init__.py": "WORD = 1\n", "src/rows.py": "COUNT = 2\n"}
    write_files(tmp_path, {"pyproject.toml": PROJECT, "requirements.txt": ".\n", **modules})
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--target", str(tmp_path / "installed"), "-r", "requirements.txt"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    write_files(tmp_path, {"train.py": "import fraud_detector, rows; print(fraud_detector.WORD, rows.COUNT)"})
    assert run(tmp_path, environ={"PYTHONPATH": str(tmp_path / "installed")}).stdout == "1 2\n"


@pytest.mark.parametrize(
    ("program", "line", "files", "right"),
    [
        ("train.py", "from .rows import count", {"rows.py": "count = 1"}, "from rows import count"),
        ("train.py", "from . import rows", {"rows.py": "count = 1"}, "import rows"),
        (
            "jobs/train.py",
            "from .rows import count as c",
            {"jobs/rows.py": "count = 1"},
            "from jobs.rows import count as c",
        ),
        ("jobs/train.py", "from ..rows import count", {"rows.py": "count = 1"}, "from rows import count"),
    ],
)
def test_relative_import_of_script_suggests_absolute_import(
    tmp_path: Path, program: str, line: str, files: dict[str, str], right: str
) -> None:
    write_files(tmp_path, {program: f"{line}\n", **files})
    assert remedy_of(tmp_path, program=program) == (
        f'; train.py runs as a script, which is in no package: write "{right}" instead of "{line}"'
    )
    write_files(tmp_path, {program: f"{right}\n"})
    assert run(tmp_path, program=program).returncode == 0


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("packaging", "from packaging import version"),
        ("packaging", "import packaging\npackaging.version"),
        ("packaging", "import packaging.version"),
        ("random", "from random import choice"),
    ],
)
def test_own_file_that_hides_package_is_named(tmp_path: Path, name: str, code: str) -> None:
    write_files(tmp_path, {f"{name}.py": "", "train.py": f"{code}\n"})
    assert remedy_of(tmp_path) == f"; your own {name}.py hides the package {name}: rename it"
