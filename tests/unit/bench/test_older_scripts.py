"""What bench/older_scripts.py changes of a script, and what it expects of each."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.older_scripts import ADD, NOTEBOOKS, REFUSED, WITHOUT_PUSH, Notebook, as_expected, write_code
from bench.scripts import common
from berth.common.errors import UserError

TEXT = 'arguments = TrainingArguments(\n        evaluation_strategy="epoch",\n    )\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the notebooks, with the same text for each script."""
    for notebook in NOTEBOOKS:
        path = tmp_path / "notebooks" / notebook.script
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT)
    return tmp_path / "notebooks"


def of(folder: str) -> list[Notebook]:
    return [notebook for notebook in NOTEBOOKS if notebook.folder.startswith(folder)]


def test_no_text_is_changed_but_by_one_word_of_one_run(checkout: Path, tmp_path: Path) -> None:
    changed = []
    for number, notebook in enumerate(NOTEBOOKS):
        write_code(notebook, checkout, tmp_path / str(number))
        text = (tmp_path / str(number) / "train.py").read_text()
        if text != TEXT:
            changed.append((notebook.note, text))
    assert changed == [("with save_strategy", TEXT.replace('epoch",', 'epoch", save_strategy="epoch",'))]


def test_the_push_is_left_out_by_a_program_around_the_script(checkout: Path, tmp_path: Path) -> None:
    (hub,) = of("14")
    assert write_code(hub, checkout, tmp_path / "code") == "without_push.py"
    assert (tmp_path / "code/without_push.py").read_text() == WITHOUT_PUSH
    assert write_code(of("01")[0], checkout, tmp_path / "other") == "train.py"


def test_a_script_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.py is not there: let BERTH_OLDER_SCRIPTS name a folder"):
        write_code(of("06")[0], tmp_path, tmp_path / "code")


@pytest.mark.parametrize(
    ("exit_code", "reason", "expected"),
    [
        (1, f"{REFUSED}, but found (raised at train.py:93); {ADD}", True),
        (1, f"{REFUSED}, but found (raised at train.py:93)", False),
        (1, "FileNotFoundError: git", False),
        (0, "", False),
    ],
)
def test_what_4_26_refuses_is_refused_with_what_to_add(exit_code: int, reason: str, *, expected: bool) -> None:
    as_it_is, with_the_word = of("09")
    assert as_expected(as_it_is, exit_code, reason) is expected
    assert as_expected(with_the_word, exit_code, reason) is (exit_code == 0)
    assert as_expected(replace(as_it_is, refused=None), 0, "")


def test_no_folder_is_one_sentence() -> None:
    assert common.scripts_folder("BERTH_X", "a folder", {"BERTH_X": "/x"}) == Path("/x")
    with pytest.raises(UserError, match="BERTH_X names no folder: set it to a folder"):
        common.scripts_folder("BERTH_X", "a folder", {})
