"""The names of environment variables: one that is not ours, and which were most likely meant to be others."""

from collections.abc import Collection, Iterable

from berth.contract.nearest import close_match

PREFIX = "BERTH_"
REQUIREMENTS = "SAGEMAKER_REQUIREMENTS"
"""By this one a job names its requirements file, where that is not called requirements.txt."""


def misspelt(names: Iterable[str], known: Collection[str], likeness: float = 0.8) -> dict[str, str]:
    """Those of `names` that are none of `known` and nearly one of them → that one; `likeness` is difflib's, 0 to 1."""
    near = {name: close_match(name, known, likeness) for name in names if name not in known}
    return {name: found for name, found in near.items() if found}


def misspelt_ours(names: Iterable[str], known: Collection[str]) -> list[str]:
    """A sentence for each of `names` that begins as ours do and is nearly one of `known`."""
    ours = (name for name in names if name.startswith(PREFIX))
    return [f"the variable {name} is not known: did you mean {meant}?" for name, meant in misspelt(ours, known).items()]
