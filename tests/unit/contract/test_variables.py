"""Misspelt environment variables."""

from berth.contract.variables import misspelt, misspelt_ours

KNOWN = ("BERTH_PRECISION", "BERTH_PAGE")


def test_misspelt_names() -> None:
    names = ("BERTH_PRECISON", "BERTH_PAGES", "BERTH_PRECISION", "BERTH_COLOUR", "PATH")
    assert misspelt(names, KNOWN) == {"BERTH_PRECISON": "BERTH_PRECISION", "BERTH_PAGES": "BERTH_PAGE"}
    assert misspelt(names, KNOWN, 0.96) == {"BERTH_PRECISON": "BERTH_PRECISION"}


def test_misspelt_ours_ignores_other_prefixes() -> None:
    assert misspelt_ours(["ERTH_PRECISION", "BERTH_PGE"], KNOWN) == [
        "the variable BERTH_PGE is not known: did you mean BERTH_PAGE?"
    ]
