"""Finds misspelt environment variables."""

from collections.abc import Collection, Iterable

from berth.contract.nearest import close_match

PREFIX = "BERTH_"
REQUIREMENTS = "SAGEMAKER_REQUIREMENTS"
"""The job's requirements file, if it is not called requirements.txt."""


def misspelt(names: Iterable[str], known: Collection[str], likeness: float = 0.8) -> dict[str, str]:
    """Unknown name → the known name that it resembles; `likeness` is difflib's ratio, 0 to 1."""
    matches = {name: close_match(name, known, likeness) for name in names if name not in known}
    return {name: match for name, match in matches.items() if match}


def misspelt_ours(names: Iterable[str], known: Collection[str]) -> list[str]:
    """A sentence per name that starts with BERTH_, is unknown and resembles one of `known`."""
    ours = (name for name in names if name.startswith(PREFIX))
    return [f"the variable {name} is not known: did you mean {meant}?" for name, meant in misspelt(ours, known).items()]
