"""The software set of an image, read from the file that the build writes."""

from importlib.metadata import version
from pathlib import Path

import pytest

from berth.images.pins import pins_file
from berth.images.pins.layer_files import SOFTWARE, layer_files
from berth.runtime import software


def test_read_software_file_of_build(tmp_path: Path) -> None:
    row = pins_file.load().profile("cpu-hf4")
    path = tmp_path / "software.json"
    path.write_text(layer_files(row)[SOFTWARE])
    assert software.read(path) == software.Software("hf4", "cpu-hf4", row.software.environment)


@pytest.mark.parametrize("text", [None, "", "{}", "[1]", '{"name": "hf4"}'])
def test_missing_or_damaged_software_file_is_none(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "software.json"
    if text is not None:
        path.write_text(text)
    assert software.read(path) is None


def test_log_line_has_installed_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "SHOWN", ("pip", "no-such-package", "pytest"))
    line = software.described(software.Software("hf4", "cpu-hf4", {}))
    assert line == f"software: set hf4 of profile cpu-hf4: pip {version('pip')}, pytest {version('pytest')}"
