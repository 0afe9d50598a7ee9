"""The Makefile, mostly with `make --dry-run`, in a folder without a virtual environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from berth.images.pins import pins

DEBIANS = Path("/usr/bin/python3.11")
LINKED = ("Makefile", "requirements.txt", "pyproject.toml", "berth", "docker", "tests")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with links to the files that the Makefile reads; its folder `bin` comes first on PATH."""
    for name in LINKED:
        (tmp_path / name).symlink_to(pins.ROOT / name)
    (tmp_path / "bin").mkdir()
    return tmp_path


def plan(checkout: Path, *goals: str) -> str:
    environment = {**os.environ, "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"}
    command = ["make", "--dry-run", "--no-print-directory", *goals]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not DEBIANS.exists(), reason="this machine has no Python 3.11 of Debian's")
def test_setup_prefers_debians_python(checkout: Path) -> None:
    for name in ("python3.11", "python3"):
        (checkout / "bin" / name).write_text(f'#!/bin/sh\nexec {DEBIANS} "$@"\n')
        (checkout / "bin" / name).chmod(0o755)
    assert f'echo "setup: .venv with {DEBIANS}"' in plan(checkout, "setup")


def test_setup_recreates_environment_of_another_python(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "uv").touch()
    python = plan(checkout, "setup").partition("setup: .venv with ")[2].partition('"')[0]
    command = [
        python,
        "-c",
        "import os, platform, sys; print(os.path.realpath(sys.executable), platform.python_version())",
    ]
    path, version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    settings = checkout / ".venv" / "pyvenv.cfg"
    settings.write_text(f"home = /usr/bin\nversion = {version}\nexecutable = {path}\n")
    assert "-m venv .venv" not in plan(checkout, "setup")
    settings.write_text(f"home = /opt\nversion = {version}\nexecutable = /opt/python3.11\n")
    assert "-m venv .venv" in plan(checkout, "setup")
    settings.write_text(f"home = /usr/bin\nversion = 3.11.0\nexecutable = {path}\n")
    assert "-m venv .venv" in plan(checkout, "setup")


def test_installations_require_hashes(checkout: Path) -> None:
    assert shutil.which("make")
    installs = [line for line in plan(checkout, "unit", "local-mode").splitlines() if "pip install" in line]
    assert len(installs) == 8, installs
    for line in installs:
        # berth itself is built with the hashed packages installed before, not in an isolated environment.
        assert "--require-hashes" in line or "--no-build-isolation" in line, line
        assert "--no-deps" in line, line
    assert "--only-binary :all:" in installs[0], (
        "installing a source distribution would run its code and download its build tools"
    )


def test_lint_runs_all_tools_after_a_failure(checkout: Path) -> None:
    tools = checkout / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, code in (("ruff", 1), ("hadolint", 0), ("shellcheck", 1), ("mypy", 0)):
        (tools / name).write_text(f'#!/bin/sh\necho "$(basename $0) ran: $1"\nexit {code}\n')
        (tools / name).chmod(0o755)
    command = ["make", "--no-print-directory", "--assume-old=.venv/tested", "lint"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    ran = [line for line in done.stdout.splitlines() if " ran: " in line]
    assert ran == [
        *("ruff ran: check", "ruff ran: format", "hadolint ran: --config", "shellcheck ran: --external-sources"),
        *("mypy ran: --package", "mypy ran: build.py"),
    ]
    (tools / "ruff").write_text("#!/bin/sh\n")
    (tools / "shellcheck").write_text("#!/bin/sh\n")
    assert subprocess.run(command, cwd=checkout, capture_output=True, timeout=60).returncode == 0


def test_quick_skips_slow_tests_and_the_reference_environment(checkout: Path) -> None:
    planned = plan(checkout, "quick")
    assert "-m 'not slow and not nightly' smdistributed/tests tests/unit" in planned
    assert " lint >" in planned
    assert ".venv-reference" not in planned


def test_make_with_a_folders_name_prints_advice(checkout: Path) -> None:
    targets = {"berth"}  # setup depends on this folder
    folders = {path.name for path in pins.ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - targets
    for name in folders:
        (checkout / name).mkdir(exist_ok=True)
    results = {
        name: subprocess.run(["make", "--no-print-directory", name], cwd=checkout, capture_output=True, text=True)
        for name in ("train", "serve", "docs", "smdistributed")
    }
    assert [
        name for name, result in results.items() if result.returncode != 2 or "not a target" not in result.stderr
    ] == []
    assert "python build.py run train" in results["train"].stderr
    assert "python build.py" not in results["docs"].stderr


def test_old_gnu_make_is_refused(checkout: Path) -> None:
    """GNU make 3.81 of macOS ignores .SHELLFLAGS, so a failed command in the middle of a recipe would be ignored."""
    command = ["make", "--no-print-directory", ".FEATURES=archives jobserver else-if", "help"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "berth: error: this is GNU make" in done.stderr
    assert "gmake" in done.stderr


def test_checkout_without_links_is_refused(checkout: Path) -> None:
    """Otherwise `make setup` would install nothing, and build.py would recommend `make setup`."""
    (checkout / "berth").unlink()
    (checkout / "berth").mkdir()
    (checkout / "berth" / "common").write_text("../common")
    shutil.copy(pins.ROOT / "build.py", checkout)
    for command in (["make", "setup"], [sys.executable, "-S", "build.py", "--help"]):
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1
        assert "core.symlinks=true" in done.stderr


def test_make_runs_scripts_with_sh(checkout: Path) -> None:
    assert [line for line in plan(checkout, "engine").splitlines() if ".sh" in line] == ["sh docker/engine.sh"]


@pytest.mark.parametrize(
    ("variable", "printed", "used"),
    [
        ("", "debian:x@sha256:0", "debian:x@sha256:0"),
        ("", "berth-base:bookworm", "berth-base:bookworm"),
        ("mine:1", "", "mine:1"),
    ],
)
def test_make_images_uses_the_found_or_given_base(variable: str, printed: str, used: str, checkout: Path) -> None:
    """A double of .venv/bin/python logs its command and BERTH_BASE_IMAGE."""
    python, engine = checkout / ".venv" / "bin" / "python", checkout / "bin" / "docker"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$2 ${{BERTH_BASE_IMAGE:-}}" >>log\n[ "$2" != base ] || echo {printed}\n')
    engine.write_text("#!/bin/sh\n")
    for program in (python, engine):
        program.chmod(0o755)
    (checkout / ".venv" / "installed").touch()
    command = ["make", "--no-print-directory", "--assume-old=.venv/installed", "images"]
    environment = {**os.environ, "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "BERTH_BASE_IMAGE": variable}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (checkout / "log").read_text().splitlines()
    assert [line for line in lines if line.startswith("build ")] == [f"build {used}"]
    assert ("base " in lines) == (not variable)


def test_ci_ignores_files_outside_the_repository(checkout: Path) -> None:
    kit = checkout / "kit"
    shutil.copytree(pins.ROOT / ".ci", kit / ".ci")
    (checkout / "shared" / "data" / "squad").mkdir(parents=True)
    make = checkout / "bin" / "make"
    make.write_text('#!/bin/sh\necho "$PWD $1 ${BERTH_SQUAD:-}"\n')
    make.chmod(0o755)
    environment = {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(kit / ".ci" / "run")], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{kit} test \n")
