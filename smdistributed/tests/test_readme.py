"""smdistributed/README.md lists every option, and every function of SMDDP's version 1."""

import re

from berth.images.pins import pins
from berth.smdistributed.dataparallel.torch import distributed
from berth.smdistributed.modelparallel import parameters

PAGE = (pins.ROOT / "smdistributed" / "README.md").read_text()
TABLE = PAGE.partition("\n### Options\n")[2].partition("\n### ")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| `")]


def options(*words: str) -> set[str]:
    """The options in rows whose second cell begins with one of these words."""
    return {name for row in ROWS if row[1].startswith(words) for name in re.findall(r"`(\w+)`", row[0])}


def test_table_lists_every_option_with_its_handling() -> None:
    assert options("honoured") == set(parameters.HONOURED)
    assert options("accepted") == set(parameters.ACCEPTED)
    assert options("refused") == set(parameters.REFUSED)


def test_page_names_every_function_of_version_1() -> None:
    ours = {
        name
        for name, each in vars(distributed).items()
        if callable(each) and getattr(each, "__module__", "") == distributed.__name__ and not name.startswith("_")
    }
    internal = {"AveragedWork", "check_group", "check_initialized", "join_environment"}
    assert ours - internal <= set(re.findall(r"\w+", PAGE))
