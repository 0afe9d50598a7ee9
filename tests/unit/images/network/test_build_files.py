"""Files that no package index has: wanted files, validation, and recording a hash."""

import hashlib
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berth.common import labels
from berth.common.errors import UserError
from berth.images.network import build_files
from berth.images.pins import pins, pins_file

BYTES = b"the content of a file that is no package" * 1000
SHA256 = hashlib.sha256(BYTES).hexdigest()
FILE = pins.PinnedFile("efa", "1.0", "efa-1.0.tar.gz", "", SHA256, key_url="http://x/efa.key", key_fingerprint="4E90")
WANTED = build_files.with_signature(FILE)[0]


def test_signed_file_brings_signature_and_key() -> None:
    efa = pins_file.load().file("efa-1.47.0")
    host = "https://efa-installer.amazonaws.com"
    assert [(want.name, want.url, want.signed) for want in build_files.with_signature(efa)] == [
        ("aws-efa-installer-1.47.0.tar.gz", f"{host}/aws-efa-installer-1.47.0.tar.gz", False),
        ("aws-efa-installer-1.47.0.tar.gz.sig", f"{host}/aws-efa-installer-1.47.0.tar.gz.sig", True),
        ("aws-efa-installer.key", f"{host}/aws-efa-installer.key", True),
    ]


def test_wanted_files_of_each_image() -> None:
    compat = pins.PinnedFile("cuda-compat", "580.1", "compat.deb", "", SHA256)
    profile = replace(pins_file.load().profile("cu130"), files={"efa": FILE, "cuda-compat": compat})
    assert [want.name for want in build_files.wanted_files(profile, ["serve"])] == ["compat.deb"]
    assert [want.part for want in build_files.wanted_files(profile, ["train"])] == ["efa", "efa", "efa", "cuda-compat"]
    assert build_files.wanted_files(profile, ["train", "serve"]) == build_files.wanted_files(profile, ["train"]), (
        "each file once"
    )
    assert build_files.wanted_files(profile.without(["efa", "cuda-compat"]), ["train"]) == []


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda path: None, "", id="missing"),
        pytest.param(lambda path: path.write_bytes(b"torn"), "its sha256 is", id="torn"),
        # It exists, but even root can't read it.
        pytest.param(lambda path: path.symlink_to("/proc/self/mem"), "it can't be read (Input/output", id="unreadable"),
    ],
)
def test_only_valid_local_file_is_used(spoil: Callable[[Path], Any], reason: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / WANTED.name).write_bytes(BYTES)
    spoil(tmp_path / WANTED.name)
    lines: list[str] = []
    found = build_files.find_valid_file(WANTED, [tmp_path, tmp_path / "folder"], lines.append)
    assert found == tmp_path / "folder" / WANTED.name
    assert len(lines) == bool(reason)
    assert all(line.startswith(f"{tmp_path / WANTED.name} is not used: {reason}") for line in lines)


def test_record_sha256_changes_one_line() -> None:
    text = pins.PATH.read_text()
    key = "smddp-2.6.0"
    changed = pins.record_sha256(text, key, SHA256)
    assert tomllib.loads(changed)["files"][key]["sha256"] == SHA256
    before, after = text.splitlines(), changed.splitlines()
    assert [old for old, new in zip(before, after, strict=True) if old != new] == [
        'sha256 = "unpinned"           # AWS publishes none'
    ]
    with pytest.raises(
        UserError, match=r'docker/pins.toml has no line sha256 = "…" in \[files."gdrcopy-2.5"\]: set it to'
    ):
        pins.record_sha256(text, "gdrcopy-2.5", SHA256)
    for quotes in ('"""', "'''"):
        with pytest.raises(UserError, match=r'has no line sha256 = "…" in \[files."smddp-2.6.0"\]: '):
            pins.record_sha256(
                text.replace('\nsha256 = "unpinned"', f"\nsha256 = {quotes}unpinned{quotes}"), key, SHA256
            )


def test_doubles_are_recognised_by_labels() -> None:
    found = {"berth.efa": "1.47.0+double", "berth.smddp": "none", "berth.torch": "2.13.0+cpu", "x.y": "1+double"}
    assert labels.doubles(found) == ["efa 1.47.0+double"]
    assert labels.doubles({}) == []


def test_docker_files_is_in_the_context_but_not_in_git() -> None:
    assert "!docker/files\n" in (pins.ROOT / ".dockerignore").read_text()
    listed = subprocess.run(["git", "check-ignore", "docker/files/x.tar.gz"], cwd=pins.ROOT, capture_output=True)
    assert listed.returncode == 0
