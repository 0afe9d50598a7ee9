"""Command lines of the programs in bench/, and their one-line errors."""

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

ALL = {path.name: path.read_text() for path in (pins.ROOT / "bench").glob("*.py") if "__main__" in path.read_text()}
PROGRAMS = sorted(name for name, text in ALL.items() if "program.end_with(main)" in text)


def test_every_program_but_gpu_uses_end_with() -> None:
    """gpu.py runs without an installation of berth's packages."""
    assert sorted(ALL) == sorted([*PROGRAMS, "gpu.py"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("give --train a file."), "berth: error: give --train a file."),
        (
            PackageNotFoundError("torch"),
            "berth: error: the package torch is not installed here: run `make setup-tests`.",
        ),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_or_message_of_exception(error: BaseException, code: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(words: Sequence[str]) -> int:
        raise error

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        program.end_with(main)
    assert end.value.code == code


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_docstring_without_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(f"bench.{name.removesuffix('.py')}")
    with pytest.raises(SystemExit) as end:
        module.main(["--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: python -m {module.__name__} ")
    assert str(module.__doc__).partition("\n")[0] in printed
    # The docstring's own line "Usage: …" must name the same module.
    assert re.findall(r"^Usage: (?:\w+=\w+ )?python -m (\S+)", str(module.__doc__), re.MULTILINE) == [module.__name__]


@pytest.mark.parametrize(
    ("module", "words", "message"),
    [
        (large_data, ["--train", "FOLDER/no.json"], r"no\.json can't be read \(No such file or directory\)"),
        (large_data, ["--train", "FOLDER"], r"can't be read \(Is a directory\)"),
        (large_data, ["--train", "FOLDER/empty.json"], r"empty\.json has no articles"),
        (large_data, ["--train", "FOLDER/rows.json"], r"rows\.json has no articles"),
        (user_scripts, ["FOLDER"], r"run_qa\.py does not exist: bench/scripts/table\.py lists the checkouts"),
        (faults, ["--only", "nothing"], "No fault's name contains 'nothing'. The names are: a rank raises; "),
        (code_metrics, ["FOLDER"], "git can't list the files of .* not a git repository"),
    ],
)
def test_wrong_argument_is_a_one_line_error(module: Any, words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"data": []}')
    (tmp_path / "rows.json").write_text("[1]")
    with pytest.raises(UserError, match=message):
        module.main([word.replace("FOLDER", str(tmp_path)) for word in words])


def test_readme_lists_every_program() -> None:
    listed = re.findall(r"^\| `bench/(\w+\.py)` \|", (pins.ROOT / "bench/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(ALL)
