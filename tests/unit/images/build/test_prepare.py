"""`prepare`: problems are reported before anything is written; dry runs."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from berth.common import engine
from berth.common.errors import UserError
from berth.images.build import prepare
from berth.images.build.plan import Base, Revision
from berth.images.build.prepare import BuildOptions
from berth.images.network import build_files, build_network, downloads
from berth.images.network.build_network import Network, PackageIndex
from berth.images.pins import pins, pins_file

UNREACHED = "aws-efa-installer-1.47.0.tar.gz can't be fetched from HOST (no route): look, or build with --without efa."


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A machine with an engine and a base, on which no file can be downloaded; returns a list for its log lines."""
    monkeypatch.setattr(pins, "CACHE", tmp_path / "berth")
    monkeypatch.setattr(build_files, "CACHE", tmp_path / "files")
    monkeypatch.setattr(build_files, "find_valid_file", lambda *_: None)
    monkeypatch.setattr(downloads.FileSource, "missing", lambda _, wants, ask: [UNREACHED] * (ask and bool(wants)))
    monkeypatch.setattr(engine, "connect", lambda: None)
    monkeypatch.setattr(prepare, "read_revision", lambda *_: Revision("1a2b3c4d5e6f"))
    monkeypatch.setattr(prepare, "local_base", lambda *_: Base("base", "sha256:0"))
    monkeypatch.setattr(prepare, "find_base", lambda *_: Base("base", "sha256:0"))
    return []


def prepared_command(lines: list[str], **options: Any) -> str:
    """The command of the training image's build; its log lines are added to `lines`."""
    made = BuildOptions("cu130", **options)
    with prepare.secrets_folder(dry_run=made.dry_run) as secrets:
        (plan,) = prepare.prepare(pins_file.load(), ["train"], made, secrets, lines.append)
    return plan.command()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("name", ["no such:::image", "Debian:bookworm", "debian:", "host.example/"])
def test_invalid_base_name_is_refused(name: str, dry_run: bool, machine: list[str]) -> None:
    with pytest.raises(UserError, match=f"^--base-image '{name}' is not an image name: write "):
        prepared_command(machine, base_image=name, dry_run=dry_run)


def test_dry_run_reports_missing_base_or_engine(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "local_base", lambda *_: None)
    prepared_command(machine, base_image="localhost:5000/team/debian_12:slim", dry_run=True)
    assert (
        "the base localhost:5000/team/debian_12:slim is not on the engine: `build` without --dry-run pulls it."
    ) in machine
    monkeypatch.setattr(prepare, "local_base", MagicMock(side_effect=UserError("no Docker engine answers.")))
    prepared_command(machine, dry_run=True)
    assert any(each.endswith("yet: no Docker engine answers.") for each in machine)


def test_dry_run_keeps_secrets_and_build_removes_them(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(None, PackageIndex(url="https://me:s3cret@corp/simple"), (), "", "", "")
    monkeypatch.setattr(build_network, "gather", lambda _: network)
    line = prepared_command(machine, dry_run=True)
    (folder,) = (tmp_path / "berth").iterdir()
    assert f"id=pip,src={folder}/pip" in line
    assert "me:s3cret@" in (folder / "pip").read_text()
    assert any(str(folder) in each for each in machine)
    assert "s3cret" not in line + str(machine)
    assert "id=pip" in prepared_command(machine, without=("efa",))
    assert list((tmp_path / "berth").iterdir()) == [folder]


def test_checkout_problem_is_reported_first(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "checkout_problems", lambda _: ["the links are lost."])
    with pytest.raises(UserError, match=r"^the links are lost\.\n"):
        prepared_command(machine)
    assert machine == []


def test_unreachable_file_is_refused_unless_omitted(machine: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        prepared_command(machine)
    assert str(refusal.value) == UNREACHED
    assert (machine, [path for path in tmp_path.rglob("*") if path.is_file()]) == ([], []), (
        "nothing may be written before"
    )
    assert "--build-arg WITHOUT=efa " in prepared_command(machine, without=("efa",))
    assert machine[0] == "no efa: NCCL uses TCP between hosts"
