"""Finds misspelt environment variables."""

from collections.abc import Collection, Iterable

from berth.contract.nearest import close_match

PREFIX = "BERTH_"
REQUIREMENTS = "SAGEMAKER_REQUIREMENTS"
"""The job's requirements file, if it is not called requirements.txt."""


def misspelt_ours(names: Iterable[str], known: Collection[str]) -> list[str]:
    """A sentence per name that starts with BERTH_, is unknown and resembles one of `known`."""
    return [
        f"the variable {name} is not known: did you mean {meant}?"
        for name in names
        if name.startswith(PREFIX) and name not in known and (meant := close_match(name, known))
    ]
