"""What process 1 of an image does with its arguments.

IMAGE            the image's own command, `train` or `serve`
IMAGE train      the same; this is what SageMaker sends
IMAGE COMMAND …  COMMAND in its place (a shell, a script)
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from berth.runtime.log import ERROR_PREFIX

USAGE, CANNOT_RUN, NOT_FOUND = 2, 126, 127  # exit codes as a shell has them


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """The command that an image is for: its name, what runs it (the result is the exit code), and its sentences."""

    name: str
    run: Callable[[], int]
    refusal: Callable[[Sequence[str]], str]
    """Why these arguments are refused; empty for those of another command, which may run in its place."""
    not_run: Callable[[str, OSError], str]
    """Why another command could not be run."""


def run_command(arguments: Sequence[str], own: OwnCommand) -> int:
    """Run the image's own command, or let another replace this process; the exit code, 126 or 127 if that fails."""
    if list(arguments) in ([], [own.name]):
        return own.run()
    if refusal := own.refusal(arguments):
        return _refuse(refusal, USAGE)
    try:
        os.execvp(arguments[0], list(arguments))
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        return _refuse(own.not_run(arguments[0], error), code)


def _refuse(sentence: str, code: int) -> int:
    print(f"{ERROR_PREFIX}{sentence}", file=sys.stderr)
    return code
