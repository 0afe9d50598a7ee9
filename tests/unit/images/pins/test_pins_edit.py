"""Adding and removing tables in the text of docker/pins.toml."""

import tomllib
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images.pins import pins, pins_file
from berth.images.pins.pins_edit import appended, without

TEXT = pins.PATH.read_text()
TABLES = {
    "software.made": {"images": ["train"], "transformers": "4.46.3", "accelerate": "1.1.1", "datasets": "3.1.0"},
    "software.made.environment": {"A": 'a "b" \\ ü', "LONG": "x\ny"},
    "profiles.made": {"from": "cpu", "software": "made"},
    "profiles.made.budget": {"train": 400},
}


def test_load_reads_appended_profile(tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(appended(TEXT, TABLES))
    assert path.read_text().startswith(TEXT.rstrip())
    all_pins, before = pins_file.load(path), pins_file.load()
    mine = all_pins.profile("made")
    assert (mine.origin, mine.hardware, mine.images, mine.budget) == ("cpu", "cpu", ("train",), {"train": 400})
    assert {name: mine.packages[name] for name in ("transformers", "datasets")} == {
        "transformers": "4.46.3",
        "datasets": "3.1.0",
    }
    assert mine.software.environment == TABLES["software.made.environment"]
    assert {name: all_pins.profiles[name] for name in before.profiles} == before.profiles


def test_removing_appended_tables_restores_the_text() -> None:
    assert without(appended(TEXT, TABLES), ["software.made", "profiles.made"]) == TEXT


def test_removing_a_profile_removes_only_its_own_comments() -> None:
    """The set hf4 has comments above and inside it; the next table's comments must stay."""
    new = without(TEXT, ["software.hf4", "profiles.cpu-hf4", "profiles.cu124-hf4"])
    removed_lines = [line for line in TEXT.splitlines() if line not in new.splitlines()]
    assert not any(line.startswith(("# The hardware", "# Compressed")) for line in removed_lines)
    assert "# For scripts written before transformers 5." in " ".join(removed_lines)
    assert "generated for an older protobuf" in " ".join(removed_lines)
    before, after = tomllib.loads(TEXT)["profiles"], tomllib.loads(new)["profiles"]
    assert before.keys() - after.keys() == {"cpu-hf4", "cu124-hf4"}


def test_comment_below_last_key_belongs_to_the_table_above() -> None:
    text = "[profiles.a]\nx = 1\n# of x\n\n# of b\n[profiles.b]\ny = 1\n"
    assert without(text, ["profiles.a"]) == "# of b\n[profiles.b]\ny = 1\n"


def test_appending_existing_table_is_refused() -> None:
    with pytest.raises(UserError, match=r"has a table \[profiles\.cpu\] already"):
        appended(TEXT, {"profiles.cpu": {"from": "cu130"}})


@pytest.mark.parametrize("text", ["[profiles]\nmade = { from = 'cpu' }\n", "profiles.made.from = 'cpu'\n"])
def test_unsupported_toml_form_is_reported(text: str) -> None:
    with pytest.raises(UserError, match="automatically: edit the file by hand"):
        without(text, ["profiles.made"])
