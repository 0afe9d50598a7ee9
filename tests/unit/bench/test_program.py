"""How the programs of bench/ take a command line, and what they say of a mistake: one sentence, no traceback."""

import re
import signal
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from bench import code_metrics, faults, large_data, program, user_scripts
from berth.common.errors import UserError
from berth.images.pins import pins

END = "program.end_with(main)"
OTHERS = {
    "gpu.py": "where nothing of ours is installed",
    "precision.py": "also on a machine with a GPU and without an engine",
}
"""Programs that are not run as `python -m bench.NAME`."""
RUN = {path.name: path.read_text() for path in (pins.ROOT / "bench").glob("*.py") if "__main__" in path.read_text()}
PROGRAMS = sorted(name for name, text in RUN.items() if END in text)


def test_every_program_ends_in_the_same_way() -> None:
    assert sorted(RUN) == sorted([*PROGRAMS, *OTHERS])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("give --train a file."), "berth: error: give --train a file."),
        (
            PackageNotFoundError("torch"),
            "berth: error: the package torch is not installed here: run `make setup-tests`.",
        ),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_ends_a_program(error: BaseException, said: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(words: Sequence[str]) -> int:
        raise error

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        program.end_with(main)
    assert end.value.code == said


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_says_what_a_program_is_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(f"bench.{name.removesuffix('.py')}")
    with pytest.raises(SystemExit) as end:
        module.main(["--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m {module.__name__} ")
    assert str(module.__doc__).partition("\n")[0] in said
    # The usage of the docstring, which --help leaves out, has the same name.
    assert re.findall(r"^Usage: (?:\w+=\w+ )?python -m (\S+)", str(module.__doc__), re.MULTILINE) == [module.__name__]


@pytest.mark.parametrize(
    ("named", "words", "said"),
    [
        (large_data, ["--train", "FOLDER/no.json"], r"no\.json can't be read \(No such file or directory\)"),
        (large_data, ["--train", "FOLDER"], r"can't be read \(Is a directory\)"),
        (large_data, ["--train", "FOLDER/empty.json"], r"empty\.json has no articles"),
        (large_data, ["--train", "FOLDER/rows.json"], r"rows\.json has no articles"),
        (user_scripts, ["FOLDER"], r"run_qa\.py does not exist: bench/scripts/table\.py says which checkouts"),
        (faults, ["--only", "nothing"], "no fault's name holds 'nothing'; the names are: a rank raises; "),
        (code_metrics, ["FOLDER"], "git can't list the files of .* not a git repository"),
    ],
)
def test_a_mistake_is_one_sentence(named: Any, words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"data": []}')
    (tmp_path / "rows.json").write_text("[1]")
    with pytest.raises(UserError, match=said):
        named.main([word.replace("FOLDER", str(tmp_path)) for word in words])


def test_the_readme_lists_every_program() -> None:
    listed = re.findall(r"^\| `bench/(\w+\.py)` \|", (pins.ROOT / "bench/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(RUN)
