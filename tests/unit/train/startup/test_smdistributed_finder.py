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


FOLDER = "import os, smdistributed as s; print(s.OPEN, os.path.realpath(s.__path__[0]), s.__version__[-6:])"
BOTH = "import smdistributed.dataparallel as d, smdistributed.modelparallel as m; print(d.WHOSE, m.__version__)"
SHARED = "from smdistributed import gloo_threads, ranks; print(ranks.launch_variables({})['WORLD_SIZE'])"
SPEC = "import sys; print(bool(importlib.util.find_spec('smdistributed')), 'smdistributed' in sys.modules)"


@pytest.mark.parametrize(
    ("code", "installed", "chosen", "printed"),
    [
        (FOLDER, False, "", f"True {OURS} +berth\n"),
        (BOTH, True, "", "AWS 1.15.0+berth\n"),
        (SHARED, True, "", "1\n"),
        (FOLDER, True, "open", f"True {OURS} +berth\n"),
        (FOLDER, False, "yes", f"True {OURS} +berth\n"),
        (SPEC, False, "", "True False\n"),
    ],
    ids=[
        "ours without a wheel",
        "AWS's wheel, completed by ours",
        "both halves need some modules",
        "open puts ours first",
        "unknown value counts as unset",
        "find_spec does not import",
    ],
)
def test_library_that_is_found(code: str, installed: bool, chosen: str, printed: str, wheel: Path) -> None:
    assert python(code, wheel if installed else None, chosen).stdout == printed


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


VERSION_2 = "print(importlib.util.find_spec('torch.sagemaker')); import torch.sagemaker as tsm; print(tsm.WHOSE)"


@pytest.mark.parametrize("chosen", ["", "open"])
def test_version_2_of_the_library_is_imported_or_named(chosen: str, tmp_path: Path) -> None:
    """torch.sagemaker: AWS's images add it to torch."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("")
    result = python(VERSION_2, tmp_path, chosen)
    assert result.stdout == "None\n", "find_spec must not raise"
    assert result.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'torch.sagemaker': it is version 2 of SageMaker's model parallel "
        "library, which is not in this image; shard with torch's own FSDP, or use version 1: import "
        "smdistributed.modelparallel.torch as smp."
    )
    (tmp_path / "torch/sagemaker.py").write_text("WHOSE = 'AWS'")
    assert python(VERSION_2, tmp_path, chosen).stdout.endswith("AWS\n")
