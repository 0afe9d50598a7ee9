"""Finds the custom MPI option that Open MPI's mpirun rejected, from its output (each message seen with 4.1.8)."""

import re
from collections.abc import Iterable

# A message of mpirun, its lines joined by single spaces → our sentence.
_REFUSALS = (
    # -P is an option of our Python, whose path mpirun took as the value of the user's last option.
    (r'Error: unknown option "-P"', "the value, or one of the values, of mpirun's last option is missing"),
    (r'Error: unknown option "(?P<option>[^"]+)"', "mpirun does not know the option {option}"),
    (
        r'Error: option "(?P<option>[^"]+)" did not have enough parameters \((?P<count>\d+)\)',
        "mpirun's option {option} needs {count} values, and some are missing",
    ),
    (
        r"MCA parameter has been listed multiple times .*?MCA param: (?P<option>\S+)",
        "the MCA parameter {option} is given to mpirun twice",
    ),
    (
        r"specified (?P<kind>\w+) policy is not recognized: Policy: (?P<option>\S+)",
        "mpirun knows no {kind} policy {option}",
    ),
    (
        r"does not match the expected format: Option: (?P<option>\S+) Param: (?P<value>\S+)",
        "mpirun's option {option} does not take {value}",
    ),
    (
        r"requested more processes than the ppr for this topology can support.*? PPR: (?P<option>\S+)",
        "{option} (from -N, -npernode or ppr) is fewer processes per host than the launch plan has",
    ),
    # Only a name without a slash: a path is our own Python, missing in a modified image.
    (
        r"first unrecognized command line token as the executable\).*?Executable: (?P<option>[^/\s]+)(?: |$)",
        "{option} is not an option of mpirun, which took it for the program",
    ),
)


def refused_option(lines: Iterable[str]) -> str | None:
    """The sentence for an option that mpirun rejected; None if its output has no such message."""
    text = " ".join(" ".join(lines).split())
    for pattern, words in _REFUSALS:
        if match := re.search(pattern, text):
            return (
                f"{words.format(**match.groupdict())}; correct or remove it in the custom MPI options of distribution."
            )
    return None
