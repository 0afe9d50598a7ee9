"""Misspelt environment variables."""

from berth.contract.variables import misspelt_ours

KNOWN = ("BERTH_PRECISION", "BERTH_PAGE")


def test_misspelt_ours_ignores_known_names_and_other_prefixes() -> None:
    names = ["ERTH_PRECISION", "BERTH_PGE", "BERTH_PRECISION", "BERTH_COLOUR", "PATH"]
    assert misspelt_ours(names, KNOWN) == ["the variable BERTH_PGE is not known: did you mean BERTH_PAGE?"]
