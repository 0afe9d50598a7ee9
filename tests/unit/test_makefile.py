"""What `make` would do, as `make --dry-run` says it, in a copy of the Makefile without an environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from berth.images.pins import pins

DEBIANS = Path("/usr/bin/python3.11")
READ = ("Makefile", "requirements.txt", "pyproject.toml", "berth", "docker", "tests")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with links to what the Makefile reads; a folder `bin` in it goes first on PATH."""
    for name in READ:
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
def test_debians_own_python_goes_before_another_build_of_the_same_version(checkout: Path) -> None:
    for name in ("python3.11", "python3"):
        (checkout / "bin" / name).write_text(f'#!/bin/sh\nexec {DEBIANS} "$@"\n')
        (checkout / "bin" / name).chmod(0o755)
    assert f'echo "setup: .venv with {DEBIANS}"' in plan(checkout, "setup")


def test_an_environment_of_another_python_is_made_again_and_one_of_the_same_is_not(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "uv").touch()
    python = plan(checkout, "setup").partition("setup: .venv with ")[2].partition('"')[0]
    asked = [
        python,
        "-c",
        "import os, platform, sys; print(os.path.realpath(sys.executable), platform.python_version())",
    ]
    path, version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    settings = checkout / ".venv" / "pyvenv.cfg"
    settings.write_text(f"home = /usr/bin\nversion = {version}\nexecutable = {path}\n")
    assert "-m venv .venv" not in plan(checkout, "setup")
    settings.write_text(f"home = /opt\nversion = {version}\nexecutable = /opt/python3.11\n")
    assert "-m venv .venv" in plan(checkout, "setup")
    settings.write_text(f"home = /usr/bin\nversion = 3.11.0\nexecutable = {path}\n")
    assert "-m venv .venv" in plan(checkout, "setup")


def test_nothing_is_installed_without_its_hash(checkout: Path) -> None:
    assert shutil.which("make")
    installs = [line for line in plan(checkout, "unit", "local-mode").splitlines() if "pip install" in line]
    assert len(installs) == 8, installs
    for line in installs:
        # The kit itself is built by what was hashed before it, not by what a build of its own would fetch.
        assert "--require-hashes" in line or "--no-build-isolation" in line, line
        assert "--no-deps" in line, line
    assert "--only-binary :all:" in installs[0], "a source would run while it is installed, and fetch what builds it"


def test_lint_goes_on_after_a_tool_that_complains(checkout: Path) -> None:
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


def test_quick_leaves_out_what_is_slow_and_needs_no_second_environment(checkout: Path) -> None:
    planned = plan(checkout, "quick")
    assert "-m pytest -q --numprocesses 2 -p tests.groups -m 'not slow and not nightly' tests/unit smd" in planned
    assert " lint >" in planned
    assert ".venv-reference" not in planned


def test_a_folders_name_is_no_target_that_is_already_made(checkout: Path) -> None:
    targets = {"berth"}  # a file that setup looks at
    folders = {path.name for path in pins.ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - targets
    for name in folders:
        (checkout / name).mkdir(exist_ok=True)
    done = {
        name: subprocess.run(["make", "--no-print-directory", name], cwd=checkout, capture_output=True, text=True)
        for name in ("train", "serve", "docs", "smdistributed")
    }
    assert [name for name, made in done.items() if made.returncode != 2 or "not a target" not in made.stderr] == []
    assert "python build.py run train" in done["train"].stderr
    assert "python build.py" not in done["docs"].stderr


def test_a_make_that_ignores_shellflags_is_refused(checkout: Path) -> None:
    """GNU make 3.81 of macOS, in whose recipes a failed command of several would not count."""
    command = ["make", "--no-print-directory", ".FEATURES=archives jobserver else-if", "help"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "berth: error: this is GNU make" in done.stderr
    assert "gmake" in done.stderr


def test_a_checkout_without_links_is_refused(checkout: Path) -> None:
    """Instead of an installation that installs nothing, and build.py which says to run `make setup`."""
    (checkout / "berth").unlink()
    (checkout / "berth").mkdir()
    (checkout / "berth" / "common").write_text("../common")
    shutil.copy(pins.ROOT / "build.py", checkout)
    for command in (["make", "setup"], [sys.executable, "-S", "build.py", "--help"]):
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1
        assert "core.symlinks=true" in done.stderr


def test_no_script_wants_a_mode_bit(checkout: Path) -> None:
    assert [line for line in plan(checkout, "engine").splitlines() if ".sh" in line] == ["sh docker/engine.sh"]


@pytest.mark.parametrize(
    ("variable", "printed", "used"),
    [
        ("", "debian:x@sha256:0", "debian:x@sha256:0"),
        ("", "berth-base:bookworm", "berth-base:bookworm"),
        ("mine:1", "", "mine:1"),
    ],
)
def test_images_start_from_the_base_that_was_found_or_asked_for(
    variable: str, printed: str, used: str, checkout: Path
) -> None:
    """A stand-in for .venv/bin/python logs its words and the base that it is told of."""
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
    assert [line for line in lines if line.startswith("build ")] == [f"build {used}"] * 2
    assert ("base " in lines) == (not variable)


def test_ci_looks_at_nothing_outside_the_repository(checkout: Path) -> None:
    kit = checkout / "kit"
    shutil.copytree(pins.ROOT / ".ci", kit / ".ci")
    (checkout / "shared" / "data" / "squad").mkdir(parents=True)
    make = checkout / "bin" / "make"
    make.write_text('#!/bin/sh\necho "$PWD $1 ${BERTH_SQUAD:-}"\n')
    make.chmod(0o755)
    environment = {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(kit / ".ci" / "run")], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{kit} test \n")
