"""Whether SDK v3's driver is the caller of a hook."""

import os
import stat
from pathlib import Path

import pytest

from berth.train.planning import mpirun
from berth.train.startup import sdk3_driver

DRIVER = "opt/ml/input/data/sm_drivers/distributed_drivers/mpi_driver.py"


@pytest.mark.parametrize(
    ("channel", "parent", "called"),
    [
        (True, ["/opt/berth/bin/python3", f"/{DRIVER}"], True),
        (True, ["/opt/berth/bin/python3", f"/{DRIVER.replace('mpi', 'torchrun')}"], False),
        (True, ["bash", "train.sh"], False),
        (False, ["/opt/berth/bin/python3", f"/{DRIVER}"], False),
        (True, None, False),
    ],
)
def test_called_by_driver_checks_channel_and_parent(
    channel: bool, parent: list[str] | None, called: bool, tmp_path: Path
) -> None:
    if channel:
        (tmp_path / DRIVER).parent.mkdir(parents=True)
    process = tmp_path / "proc" / str(os.getppid())
    process.mkdir(parents=True)
    if parent is not None:
        (process / "cmdline").write_bytes("\0".join([*parent, ""]).encode())
    assert sdk3_driver.called_by_driver(tmp_path) is called
    (process / "cmdline").write_bytes(
        b"python3\0/" + DRIVER.replace("mpi_driver", "basic_script_driver").encode() + b"\0"
    )
    assert sdk3_driver.called_by_driver(tmp_path, sdk3_driver.SCRIPT_DRIVER) is channel
    assert not sdk3_driver.called_by_driver(tmp_path)


def test_find_mpirun_ignores_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, real = tmp_path / "hooks", tmp_path / "real"
    for folder, version in ((hooks, "0.0"), (real, "4.1.8")):
        folder.mkdir()
        (folder / "mpirun").write_text(f"#!/bin/sh\necho 'mpirun (Open MPI) {version}'\n")
        (folder / "mpirun").chmod(stat.S_IRWXU)
    monkeypatch.setattr(sdk3_driver, "HOOKS", str(hooks))
    monkeypatch.setenv("PATH", f"{hooks}:{real}:{os.environ['PATH']}")
    monkeypatch.delenv("OPAL_PREFIX", raising=False)
    assert mpirun.find_mpirun() == (str(real / "mpirun"), 4)
