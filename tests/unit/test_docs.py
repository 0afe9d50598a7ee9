"""What the documents name is there: paths of the checkout, targets of make, commands."""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

import pytest

from berth.images import pins

PAGES = (
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "bench/README.md",
    "ecr/README.md",
    "docker/README.md",
    "examples/image_classification_vit/README.md",
    "examples/question_answering_smddp/README.md",
    "examples/text_classification_model_parallel/README.md",
    "sample/README.md",
    "serve/README.md",
    "train/README.md",
    "train/smdistributed/README.md",
)
DOCS = sorted([*PAGES, *(path.relative_to(pins.ROOT).as_posix() for path in (pins.ROOT / "docs").glob("*.md"))])
# Channels of a job's data, a folder that a user makes, and a unit.
OTHERS = ("train/", "validation/", "test/", "examples/s")


@pytest.fixture(scope="module")
def tracked() -> frozenset[str]:
    """Every file of the checkout and the folders above it."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=pins.ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [name for name in listed if (pins.ROOT / name).exists()]
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
    return frozenset([*files, *folders])


def named_paths(page: str, tracked: frozenset[str]) -> list[str]:
    """Words in a page's code that begin with a name of the top level or of the page's own folder."""
    text = (pins.ROOT / page).read_text()
    code = [*re.findall(r"```.*?```", text, re.DOTALL), *re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)]
    top = {name for name in tracked if "/" not in name}
    own = PurePosixPath(page).parent
    found = []
    for word in re.findall(r"[\w.*/…:-]+", " ".join(code)):
        path = word.partition("::")[0].rstrip(".,:")
        first = path.partition("/")[0]
        if "/" in path[1:] and first and path not in OTHERS and (first in top or str(own / first) in tracked):
            found.append(path)
    return sorted(set(found))


def is_there(path: str, page: str, tracked: frozenset[str]) -> bool:
    """From the top level or the page's folder; a word in capitals stands for any name."""
    pattern = re.sub(r"\b[A-Z]{3,}\b", "*", path.rstrip("/"))
    places = [pattern, (PurePosixPath(page).parent / pattern).as_posix()]
    return any(fnmatch(name, place) for place in places for name in tracked)


@pytest.mark.parametrize("page", DOCS)
def test_every_path_that_a_page_names_is_there(page: str, tracked: frozenset[str]) -> None:
    found = named_paths(page, tracked)
    missing = [path for path in found if not is_there(path, page, tracked)]
    assert not missing, f"{page} names {', '.join(missing)}"
    assert found or page != "docs/architecture.md"


@pytest.mark.parametrize("page", DOCS)
def test_every_target_of_make_that_a_page_names_is_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (pins.ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (pins.ROOT / page).read_text(), re.MULTILINE))
    assert named <= targets


def code_lines(page: str) -> Iterator[str]:
    """The lines of a page's blocks of code, continued ones in one and without comments, and its code between words."""
    text = (pins.ROOT / page).read_text()
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.split(r"\s#", line)[0]
    for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        yield span.replace("\n", " ")


def parsed(group: Any, words: list[str]) -> Any:
    """The command of `build.py` that the first of these words name; None if the first names none."""
    command = group
    while words and hasattr(command, "get_command"):
        command, words = command.get_command(None, words[0]), words[1:]
    return command


@pytest.mark.parametrize("page", DOCS)
def test_every_command_that_a_page_shows_has_its_options(page: str, command_line: ModuleType) -> None:
    group = command_line.CommandLine(name="build.py")
    wrong = []
    for line in code_lines(page):
        if called := re.search(r"(?:^|python )build\.py((?: [a-z][a-z-]*)+)", line):
            command = parsed(group, called[1].split())
            there = {name for option in getattr(command, "params", ()) for name in option.opts} | {"--help"}
            given = re.findall(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])(?![\w-])", line)
            wrong += [line] if command is None or not there.issuperset(given) else []
        if (module := re.search(r"python -m ((?:bench|tests|berth)\.[\w.]+)", line)) and not find_spec(module[1]):
            wrong.append(line)
    assert not wrong


@pytest.mark.parametrize("page", DOCS)
def test_code_to_paste_is_python_and_shell(page: str) -> None:
    text = (pins.ROOT / page).read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(block, page, "exec")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):  # up to an answer, which is JSON
        said = subprocess.run(["bash", "-n"], input=block.partition("\n{")[0], capture_output=True, text=True)
        assert (said.returncode, said.stderr) == (0, ""), block


@pytest.mark.parametrize("page", DOCS)
def test_every_link_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", (pins.ROOT / page).read_text())
    missing = [link for link in links if not ((pins.ROOT / page).parent / link).exists()]
    assert not missing


def test_readmes_table_has_every_folder(tracked: frozenset[str]) -> None:
    table = (pins.ROOT / "README.md").read_text().partition("\n| folder |")[2].partition("\n\n")[0]
    named = {
        name for line in table.splitlines() for name in re.findall(r"`([\w.]+)/`", line.split("|")[1] if line else "")
    }
    assert named == {name.partition("/")[0] for name in tracked if "/" in name and not name.startswith(".")}


def test_readmes_answer_is_what_a_fresh_demo_gave() -> None:
    """README shows the answer to the demo's first question, whose score its measured run has in a table."""
    shown = re.search(r'^\{"score": ([\d.]+),.*"answer": "(\w+)"', (pins.ROOT / "README.md").read_text(), re.MULTILINE)
    assert shown is not None
    measured = sorted((pins.ROOT / "bench" / "results").glob("*-fresh.md"))[-1].read_text()
    given = re.search(r"│ What is used for +│ (\w+) +│ ([\d.]+) │", measured)
    assert given is not None
    assert (shown[2], shown[1]) == given.groups()
