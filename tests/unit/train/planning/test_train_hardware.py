"""The hardware of this machine, and the choice of the network interface."""

from pathlib import Path

import pytest

from berth.runtime import interfaces
from berth.train.planning import hardware


def test_probe_this_machine() -> None:
    detected = hardware.probe()
    assert detected.cpus > 0
    assert "lo" in detected.interfaces
    assert detected.shm is None or detected.shm > 0


def test_existing_interface_is_empty_unless_the_host_has_it(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/eth1").mkdir(parents=True)
    existing = [interfaces.existing_interface(name, tmp_path) for name in ("eth1", "ethwe", "", None)]
    assert existing == ["eth1", "", "", ""]


@pytest.mark.parametrize(
    ("requested", "available", "alone", "chosen"),
    [
        ("eth1", ("eth0", "eth1", "lo"), False, "eth1"),
        ("ethwe", ("eth0", "lo"), False, "eth0"),
        (None, ("eth0", "lo"), False, "eth0"),
        ("eth0", ("eth0", "lo"), True, "lo"),
        ("eth0", ("lo",), False, "lo"),
    ],
)
def test_choose_interface(requested: str | None, available: tuple[str, ...], alone: bool, chosen: str) -> None:
    assert interfaces.choose_interface(requested, available, alone=alone) == chosen
