"""`import smdistributed` finds berth's library, AWS's wheel, or fails with a reason; each in its own Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from berth.images.pins import pins

START = "import importlib.util\nfrom berth.train.startup import start_hook\nstart_hook.start()\n"
OURS = pins.ROOT / "smdistributed" / "src" / "smdistributed"


def python(code: str, path: Path | None = None, chosen: str = "") -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(path or ""), "BERTH_SMDISTRIBUTED": chosen}
    command = [sys.executable, "-P", "-c", START + code]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A double of AWS's wheel with only one half, dataparallel."""
    for folder in ("smdistributed", "smdistributed/dataparallel"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("WHOSE = 'AWS'")
    return tmp_path


def test_ours_is_found_without_wheel() -> None:
    result = python(
        "import smdistributed; print(smdistributed.OPEN, smdistributed.__path__[0], smdistributed.__version__)"
    )
    is_open, folder, version = result.stdout.split()
    assert (is_open, Path(folder).resolve()) == ("True", OURS)
    assert version.endswith("+berth"), "the version must not look like AWS's"


def test_wheel_of_aws_takes_precedence_and_ours_completes_it(wheel: Path) -> None:
    code = "import smdistributed.dataparallel as d, smdistributed.modelparallel as m; print(d.WHOSE, m.__version__)"
    assert python(code, wheel).stdout == "AWS 1.15.0+berth\n"
    code = "from smdistributed.ranks import launch_variables; print(launch_variables({})['WORLD_SIZE'])"
    assert python(code, wheel).stdout == "1\n", "both halves need smdistributed.ranks"


def test_open_puts_ours_first(wheel: Path) -> None:
    assert python("import smdistributed; print(smdistributed.OPEN)", wheel, "open").stdout == "True\n"


def test_aws_disables_ours(wheel: Path) -> None:
    result = python("print(importlib.util.find_spec('smdistributed')); import smdistributed", chosen="aws")
    assert result.stdout == "None\n", "find_spec must not raise"
    assert result.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'smdistributed': AWS's wheel is not in this image, and "
        "BERTH_SMDISTRIBUTED is aws, which disables berth's open implementation; unset BERTH_SMDISTRIBUTED, or set "
        "it to open."
    )
    code = "import smdistributed.dataparallel as d; print(d.WHOSE); import smdistributed.modelparallel"
    result = python(code, wheel, "aws")
    assert result.stdout == "AWS\n"
    assert "No module named 'smdistributed.modelparallel'" in result.stderr


@pytest.mark.parametrize("installed", [False, True])
def test_off_disables_both(installed: bool, wheel: Path) -> None:
    result = python("import smdistributed", wheel if installed else None, "off")
    assert result.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'smdistributed': BERTH_SMDISTRIBUTED is off, which disables AWS's "
        "wheel and berth's open implementation; unset BERTH_SMDISTRIBUTED, or set it to open."
    )


def test_unknown_value_counts_as_unset() -> None:
    assert python("import smdistributed; print(smdistributed.OPEN)", chosen="yes").stdout == "True\n"


def test_find_spec_does_not_import() -> None:
    code = "import sys; print(bool(importlib.util.find_spec('smdistributed')), 'smdistributed' in sys.modules)"
    assert python(code).stdout == "True False\n"
