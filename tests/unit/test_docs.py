"""Paths, make targets, commands, options, links and headings in the pages exist. Generated files are up to date, and
README stays short.
"""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import pytest

from berth.images.pins import pins
from berth.train.planning import efa

PAGES = (
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "bench/README.md",
    "ecr/README.md",
    "docker/README.md",
    "sample/README.md",
    "serve/README.md",
    "train/README.md",
    "smdistributed/CHANGELOG.md",
    "smdistributed/README.md",
)
OTHER_PAGES = (path for pattern in ("docs/*.md", "examples/**/README.md") for path in pins.ROOT.glob(pattern))
DOCS = sorted([*PAGES, *(path.relative_to(pins.ROOT).as_posix() for path in OTHER_PAGES)])
# Words with a slash that are not paths of the checkout: folders of a user's channels, and examples per second.
NOT_PATHS = ("train/", "validation/", "test/", "examples/s")
LINES_OF_README, WORDS_OF_README = 130, 1000


@pytest.fixture(scope="module")
def tracked() -> frozenset[str]:
    """The files of the checkout that git does not ignore, new ones too, and their folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=pins.ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [name for name in listed if (pins.ROOT / name).exists()]
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
    return frozenset([*files, *folders])


def named_paths(page: str, tracked: frozenset[str]) -> list[str]:
    """Words with a slash in a page's code that begin with a file or folder of the root or of the page's folder."""
    text = (pins.ROOT / page).read_text()
    code = [*re.findall(r"```.*?```", text, re.DOTALL), *re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)]
    top = {name for name in tracked if "/" not in name}
    own = PurePosixPath(page).parent
    paths = []
    for word in re.findall(r"[\w.*/…:-]+", " ".join(code)):
        path = word.partition("::")[0].rstrip(".,:")
        first = path.partition("/")[0]
        if "/" in path[1:] and first and path not in NOT_PATHS and (first in top or str(own / first) in tracked):
            paths.append(path)
    return sorted(set(paths))


def exists(path: str, page: str, tracked: frozenset[str]) -> bool:
    """Whether a path exists, from the top level or from the page's folder. A word in capitals stands for any name."""
    pattern = re.sub(r"\b[A-Z]{3,}\b", "*", path.rstrip("/"))
    places = [pattern, (PurePosixPath(page).parent / pattern).as_posix()]
    return any(fnmatch(name, place) for place in places for name in tracked)


@pytest.mark.parametrize("page", DOCS)
def test_paths_named_in_pages_exist(page: str, tracked: frozenset[str]) -> None:
    paths = named_paths(page, tracked)
    missing = [path for path in paths if not exists(path, page, tracked)]
    assert not missing, f"{page} names paths that do not exist: {', '.join(missing)}"
    assert paths or page != "docs/architecture.md"


@pytest.mark.parametrize("page", DOCS)
def test_make_targets_named_in_pages_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (pins.ROOT / "Makefile").read_text(), re.MULTILINE))
    page_targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", (pins.ROOT / page).read_text(), re.MULTILINE))
    assert page_targets <= targets


def code_lines(page: str) -> Iterator[str]:
    """The lines of a page's code blocks (continuation lines joined, without comments), and its inline code."""
    text = (pins.ROOT / page).read_text()
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.split(r"\s#", line)[0]
    for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        yield span.replace("\n", " ")


def find_command(group: Any, words: list[str]) -> Any:
    """The command of `build.py` that the first words name; None if there is no such command."""
    command = group
    while words and hasattr(command, "get_command"):
        command, words = command.get_command(None, words[0]), words[1:]
    return command


@pytest.mark.parametrize("page", DOCS)
def test_commands_and_options_in_pages_exist(page: str, command_line: ModuleType) -> None:
    group = command_line.CommandLine(name="build.py")
    wrong = []
    for line in code_lines(page):
        if called := re.search(r"(?:^|python )build\.py((?: [a-z][a-z-]*)+)", line):
            command = find_command(group, called[1].split())
            known = {name for option in getattr(command, "params", ()) for name in option.opts} | {"--help"}
            options = re.findall(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])(?![\w-])", line)
            wrong += [line] if command is None or not known.issuperset(options) else []
        if (module := re.search(r"python -m ((?:bench|tests|berth)\.[\w.]+)", line)) and not find_spec(module[1]):
            wrong.append(line)
    assert not wrong


@pytest.mark.parametrize("page", DOCS)
def test_code_blocks_have_valid_syntax(page: str) -> None:
    text = (pins.ROOT / page).read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(block, page, "exec")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):  # without the answer, which is JSON
        checked = subprocess.run(["bash", "-n"], input=block.partition("\n{")[0], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, ""), block


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCS)
def test_links_have_targets(page: str) -> None:
    missing = []
    for link in re.findall(r"\]\((?!https?://)([^)]+)\)", (pins.ROOT / page).read_text()):
        path, _, anchor = link.partition("#")
        target = (pins.ROOT / page).parent / path if path else pins.ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert not missing


HEADING = re.compile(r"`([\w/-]+\.md)`,\s+\"([^\"]+)\"")


@pytest.mark.parametrize("page", DOCS)
def test_quoted_headings_exist(page: str) -> None:
    quoted = HEADING.findall((pins.ROOT / page).read_text())
    missing = [
        (name, heading)
        for name, heading in quoted
        if not re.search(rf"^#+ {re.escape(' '.join(heading.split()))}$", (pins.ROOT / name).read_text(), re.MULTILINE)
    ]
    assert not missing


@pytest.mark.parametrize("page", DOCS)
def test_lines_outside_tables_have_at_most_120_characters(page: str) -> None:
    lines = (pins.ROOT / page).read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def test_readme_is_short_and_links_every_page() -> None:
    text = (pins.ROOT / "README.md").read_text()
    assert text.count("\n") <= LINES_OF_README
    assert len(text.split()) <= WORDS_OF_README
    pages = {page for page in DOCS if page.startswith("docs/")}
    assert pages <= set(re.findall(r"\]\(([^)]+)\)", text))


def test_generated_pages_are_up_to_date() -> None:
    """`python docs/make.py` writes docs/cli.md and docs/overview.svg."""
    module = runpy.run_path(str(pins.ROOT / "docs" / "make.py"))
    assert module["CLI"].read_text() == module["cli_page"]()
    assert module["PICTURE"].read_text() == module["picture"]()


def test_gpu_page_shows_the_network_lines_of_a_job() -> None:
    page = (pins.ROOT / "docs/gpu.md").read_text()
    devices = tuple(f"efa_{number}" for number in range(4))
    no_devices = efa.Fabric(built=True, plugin="libnccl-net.so")
    assert (
        "network: NCCL over EFA: 4 devices, plugin libnccl-net.so" in page
    )  # tests/unit/train/planning/test_efa.py asserts this line
    assert efa.network_line(no_devices, "nccl") in page
    assert efa.network_line(efa.Fabric(), "nccl") in page
    assert efa.network_line(efa.Fabric(), "gloo") in page
    for fabric in (efa.Fabric(built=True, obstacle="X"), replace(no_devices, devices=devices, closed="X")):
        assert efa.network_line(fabric, "nccl").partition("X")[0] in page


@pytest.mark.slow
def test_program_of_the_spot_page_resumes_after_sigterm(tmp_path: Path) -> None:
    """After SIGTERM the program saves its step and ends with exit code 0; the next run goes on from the saved step."""
    page = (pins.ROOT / "docs/spot.md").read_text()
    (program,) = re.findall(r"^```python\n(import json\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(program.replace("/opt/ml/checkpoints", str(tmp_path)).replace("(0.1)", "(0.02)"))
    state = tmp_path / "state-0.json"
    command = [sys.executable, "train.py"]
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as first:
        while not state.exists() and first.poll() is None:
            time.sleep(0.05)
        first.send_signal(signal.SIGTERM)
        output, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    step = int(re.findall(r"^stopped at step (\d+)$", output, re.MULTILINE)[0])
    assert 50 <= step < 200
    assert json.loads(state.read_text()) == {"step": step}
    state.write_text('{"step": 250}')  # beyond the last step: a program that begins anew would end at 200
    second = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert second.stdout == "finished at step 250\n"


def test_readme_lists_every_folder(tracked: frozenset[str]) -> None:
    table = (pins.ROOT / "README.md").read_text().partition("\n| folder |")[2].partition("\n\n")[0]
    listed = {
        name for line in table.splitlines() for name in re.findall(r"`([\w.]+)/`", line.split("|")[1] if line else "")
    }
    assert listed == {name.partition("/")[0] for name in tracked if "/" in name and not name.startswith(".")}


def test_readme_shows_the_measured_answer_of_the_demo() -> None:
    """README shows the demo's first answer and its score as in the newest bench/results/*-fresh.md."""
    shown = re.search(r"│ What is used for inference\? +│ (\w+) +│ ([\d.]+) │", (pins.ROOT / "README.md").read_text())
    assert shown is not None
    results = sorted((pins.ROOT / "bench" / "results").glob("*-fresh.md"))[-1].read_text()
    measured = re.search(r"│ What is used for +│ (\w+) +│ ([\d.]+) │", results)
    assert measured is not None
    assert shown.groups() == measured.groups()
