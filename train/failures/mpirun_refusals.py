"""Which of the user's custom MPI options Open MPI's mpirun refused, from what it wrote (4.1.8, each message seen)."""

import re
from collections.abc import Iterable

# A message, its lines joined by single spaces → what is wrong, in our words.
_REFUSALS = (
    # -P is our Python's, whose path an option before it has taken for its value.
    (r'Error: unknown option "-P"', "the last option lacks its value, or one of its values"),
    (r'Error: unknown option "(?P<option>[^"]+)"', "mpirun does not know the option {option}"),
    (
        r'Error: option "(?P<option>[^"]+)" did not have enough parameters \((?P<count>\d+)\)',
        "mpirun's option {option} lacks its values, {count} in all",
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
        "{option} (by -N, -npernode or ppr) is fewer processes on each host than the launch plan has",
    ),
    # A path would be our own Python, missing in an image that was changed.
    (
        r"first unrecognized command line token as the executable\).*?Executable: (?P<option>[^/\s]+)(?: |$)",
        "mpirun took {option} for the program, for it is no option",
    ),
)


def refused_option(lines: Iterable[str]) -> str | None:
    """The sentence for an option that mpirun refuses, by its output; None where it says nothing of the kind."""
    text = " ".join(" ".join(lines).split())
    for pattern, words in _REFUSALS:
        if match := re.search(pattern, text):
            return (
                f"{words.format(**match.groupdict())}; correct or remove it in the custom MPI options of distribution."
            )
    return None
