"""The owner of a run: read from labels, and whether its process has ended."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from berth.common import labels, owner


def test_owner_survives_a_round_trip_through_labels() -> None:
    me = owner.this_process()
    run_labels = me.labels("run-1")
    assert (run_labels[labels.KIT], run_labels[labels.RUN], run_labels[labels.PID]) == (
        "run",
        "run-1",
        str(os.getpid()),
    )
    assert owner.from_labels(run_labels) == me
    assert not owner.is_gone(me)


def test_is_gone_for_ended_process_and_reused_process_id() -> None:
    me = owner.this_process()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert owner.is_gone(replace(me, pid=child.pid))
    assert owner.is_gone(replace(me, started="another time"))
    assert not owner.is_gone(replace(me, pid=child.pid, machine="another machine"))


def test_machines_are_told_apart_by_their_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(content: str) -> str:
        (tmp_path / "machine-id").write_text(content)
        monkeypatch.setattr(owner, "MACHINE_ID_FILES", (tmp_path / "machine-id", tmp_path / "boot_id"))
        return owner.this_process().machine

    (tmp_path / "boot_id").write_text("a-boot\n")
    mine = machine("00112233445566778899aabbccddeeff\n")
    theirs = replace(owner.this_process(), pid=999_999)
    assert "00112233445566778899aabbccddeeff" not in mine, "machine-id(5) asks not to publish it"
    assert owner.is_gone(theirs)
    assert machine("ffeeddccbbaa99887766554433221100\n") != mine
    assert not owner.is_gone(theirs)
    # Container images often have an empty machine ID or none; then the boot ID distinguishes machines.
    empty = machine("\n")
    (tmp_path / "boot_id").write_text("another-boot\n")
    assert machine("") != empty


@pytest.mark.parametrize(
    "run_labels",
    [
        pytest.param({}, id="none"),
        pytest.param({labels.PID: "0", labels.STARTED: "", labels.MACHINE: "m"}, id="pid-0"),
        pytest.param({labels.PID: "-1", labels.STARTED: "", labels.MACHINE: "m"}, id="negative"),
        pytest.param({labels.PID: "12"}, id="pid-alone"),
    ],
)
def test_from_labels_returns_none_for_invalid_labels(run_labels: dict[str, str]) -> None:
    assert owner.from_labels(run_labels) is None
