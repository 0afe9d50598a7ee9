"""This machine, looked at as a host."""

from berth.train import hardware


def test_this_machine() -> None:
    found = hardware.probe()
    assert found.cpus > 0
    assert "lo" in found.interfaces
    assert found.shm is None or found.shm > 0
