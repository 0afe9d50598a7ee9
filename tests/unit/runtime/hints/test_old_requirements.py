"""A requirement that is too old for what imports it: its line is named, and no other package is suspected."""

import importlib.metadata
from pathlib import Path

import pytest

from berth.runtime.hints.program import PackageNote, ProgramContext, RaisedException
from berth.runtime.hints.table import remedy
from tests.unit.runtime.hints.programs import lay

MESSAGE = "cannot import name 'PaddedRows' from 'packaging.version' (/opt/berth/lib/packaging/version.py)"


@pytest.mark.parametrize(("line", "named"), [("packaging==1.0", True), ("Packaging <2", True), ("packaging", False)])
def test_the_line_that_holds_a_package_back_is_named(tmp_path: Path, line: str, named: bool) -> None:
    lay(tmp_path, {"requirements.txt": f"# of last year\n{line}\n"})
    note = PackageNote("requirements.txt replaces accelerate 1.15.0 with 0.21.0", ("accelerate", "packaging"))
    said = remedy(RaisedException("ImportError", MESSAGE), ProgramContext(tmp_path, package_note=note))
    version = importlib.metadata.version("packaging")
    mine = f"; packaging {version} (requirements.txt, line 2) has no PaddedRows: raise its version, or remove the pin"
    assert said == (mine if named else f"; {note.text}")


def test_a_package_that_the_note_names_is_left_to_it(tmp_path: Path) -> None:
    lay(tmp_path, {"requirements.txt": "packaging==1.0\n"})
    note = PackageNote("packaging 1.0 (requirements.txt, line 1) conflicts with transformers 5.23.0", ("packaging",))
    said = remedy(RaisedException("ImportError", MESSAGE), ProgramContext(tmp_path, package_note=note))
    assert said == f"; {note.text}"
