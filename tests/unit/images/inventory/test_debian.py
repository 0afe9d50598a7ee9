"""Debian's packages: what is recorded of them, and what apt says of newer ones."""

from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images import pins
from berth.images.inventory import debian
from berth.images.inventory.cyclonedx import BillPackage
from berth.images.inventory.debian import Update

# As apt 2.6 prints it.
SIMULATED = """\
Release a=now
Release v=12,o=Debian,a=oldstable-security,n=bookworm-security,l=Debian-Security,c=main,b=amd64
Release v=12.15,o=Debian,a=oldstable,n=bookworm,l=Debian,c=main,b=amd64
Inst procps [2:4.0.1-1] (2:4.0.2-3 Debian:12.15/oldstable [amd64])
Inst openssl [3.0.1-1] (3.0.19-1 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64])
Inst libnew (1.0-1 Debian:12.15/oldstable [amd64])
Inst tzdata [2024a-0+deb12u1] (2026f-0+deb12u1 Debian-Security:12/oldstable-security [all])
Conf procps (2:4.0.2-3 Debian:12.15/oldstable [amd64])
"""


def deb(name: str, version: str, kind: str = "deb") -> BillPackage:
    return BillPackage(name, version, kind, "", "", "", "")


def test_updates_of_the_security_archive_come_first() -> None:
    assert debian.updates(SIMULATED) == [
        Update("openssl", "3.0.1-1", "3.0.19-1", security=True),
        Update("tzdata", "2024a-0+deb12u1", "2026f-0+deb12u1", security=True),
        Update("procps", "2:4.0.1-1", "2:4.0.2-3", security=False),
    ]


def test_silence_without_the_security_archive_is_no_all_clear() -> None:
    printed = "".join(line for line in SIMULATED.splitlines(keepends=True) if "l=Debian-Security" not in line)
    with pytest.raises(UserError, match=r"none of the image's package archives is Debian's security archive"):
        debian.updates(printed)


def test_nothing_newer() -> None:
    assert debian.updates("\n".join(SIMULATED.splitlines()[:3])) == []


def test_a_record_holds_debians_packages_of_both_images(tmp_path: Path) -> None:
    train = [deb("libc6", "2.36-9"), deb("openssh-server", "1:9.2p1-2"), deb("rich", "15.0", "python")]
    path = debian.write_record([*train, deb("libc6", "2.36-9")], "cpu", tmp_path)
    assert path == debian.record_path("cpu", tmp_path) == tmp_path / "cpu.txt"
    recorded = path.read_text()
    assert recorded.startswith("# Debian's packages")
    assert debian.recorded(recorded) == {"libc6": "2.36-9", "openssh-server": "1:9.2p1-2"}
    assert debian.moved_on(path, train) == ""
    assert debian.moved_on(path, [deb("libc6", "2.36-9")]) == "", "the other image has more"
    assert debian.moved_on(None, train) == ""


def test_a_profile_without_a_record_has_that_of_the_row_that_it_comes_from(tmp_path: Path) -> None:
    kit = pins.load()
    assert debian.record_of(kit, "cpu-hf4", tmp_path) is None
    (tmp_path / "cpu.txt").write_text("")
    assert debian.record_of(kit, "cpu-hf4", tmp_path) == tmp_path / "cpu.txt"
    (tmp_path / "cpu-hf4.txt").write_text("")
    assert debian.record_of(kit, "cpu-hf4", tmp_path) == tmp_path / "cpu-hf4.txt"
    assert {debian.record_of(kit, name) for name in kit.profiles} == {
        debian.record_path(name) for name in ("cpu", "cpu-hf4", "cu130", "cu124")
    }


def test_another_version_is_said_in_one_sentence(tmp_path: Path) -> None:
    path = debian.write_record([deb("libc6", "2.36-9"), deb("tzdata", "2026e")], "cpu", tmp_path)
    assert debian.moved_on(path, [deb("libc6", "2.36-9"), deb("tzdata", "2026f"), deb("new", "1")]) == (
        "Debian's archive has moved on since docker/debian/cpu.txt was recorded: tzdata 2026e → 2026f, new not "
        "recorded → 1; test the images, then record what they hold."
    )


def test_many_changes_are_counted(tmp_path: Path) -> None:
    empty = debian.write_record([], "cpu", tmp_path)
    said = debian.moved_on(empty, [deb(f"p{number}", "1") for number in range(9)])
    assert "p4 not recorded → 1 and 4 more; test" in said
    assert "p5" not in said
