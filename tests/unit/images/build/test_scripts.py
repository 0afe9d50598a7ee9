"""Errors of docker/engine.sh and docker/base.sh, and rules for the scripts of layers."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from berth.images.pins import pins
from tests.doubles.programs import shell_program

DOCKER = pins.ROOT / "docker"
TOOLS = ("sh", "id", "sleep", "tail", "grep", "rm", "cat", "sed", "mktemp", "setsid")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for PATH with a shell's usual tools but neither docker nor apt-get."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    return folder


def run(script: str, *words: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), **variables}
    command = ["/bin/sh", str(DOCKER / script), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30)


def test_engine_script_does_nothing_if_an_engine_answers(bare: Path) -> None:
    shell_program(bare / "docker", "echo 20.10.24")
    result = run("engine.sh", path=bare, DOCKER_HOST="tcp://127.0.0.1:9")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("user", "variables", "message"),
    [
        pytest.param(
            "0", {"DOCKER_HOST": "tcp://127.0.0.1:9"}, "unset DOCKER_HOST to use this machine's", id="dead-host"
        ),
        pytest.param("1000", {}, "install it ('sudo apt-get install docker.io')", id="no-root"),
        pytest.param("0", {}, "this machine has no apt-get to install one", id="no-apt"),
    ],
)
def test_engine_script_explains_missing_engine(user: str, variables: dict[str, str], message: str, bare: Path) -> None:
    shell_program(bare / "id", f"echo {user}")
    # The script also tries /usr/bin/docker, which must not reach this machine's engine: it finds no certificates.
    result = run("engine.sh", path=bare, **{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(bare), **variables})
    assert result.returncode == 1
    assert result.stderr.startswith("berth: error: no Docker engine answers")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_base_script_needs_root(bare: Path) -> None:
    shell_program(bare / "id", "echo 1000")
    result = run("base.sh", "x:y", path=bare)
    assert result.returncode == 1
    assert "run 'sudo sh docker/base.sh x:y'" in result.stderr


def test_failed_base_script_shows_reason_without_password(bare: Path, tmp_path: Path) -> None:
    shell_program(bare / "id", "echo 0")
    shell_program(bare / "mmdebstrap", "echo 'E: http://user:se@secret@mirror/debian is not signed'; exit 1")
    sources = tmp_path / "sources"
    sources.write_text("deb http://user:se@secret@mirror/debian bookworm main\n")
    result = run("base.sh", "x:y", str(sources), path=bare, TMPDIR=str(tmp_path / "bin"))
    assert result.returncode == 1
    assert "base: Debian 12 from http://mirror/debian" in result.stderr
    assert "E: http://mirror/debian is not signed" in result.stderr
    assert "berth: error: the Debian base could not be made" in result.stderr
    assert "secret" not in result.stderr
    assert sorted(path.name for path in bare.iterdir() if path.is_dir()) == []


def test_build_steps_use_no_shared_cache() -> None:
    # Every user of an engine can write into its cache mounts, and uv does not verify cached files again.
    steps = (DOCKER / "Dockerfile").read_text()
    assert "type=cache" not in steps
    for script in (DOCKER / "layers").glob("*.sh"):
        for command in re.findall(r"uv pip install.*", script.read_text()):
            assert "--no-cache" in command, script


def test_layers_install_wheels_only() -> None:
    """Building from source would run code that no hash covers."""
    text = (pins.ROOT / "docker" / "layers" / "common.sh").read_text()
    assert "--only-binary :all:" in text
    assert 'rm -rf "$unpacked"' in text
