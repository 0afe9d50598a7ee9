"""What process 1 of an image does with its arguments.

IMAGE            the image's own command, `train` or `serve`
IMAGE train      the same; this is what SageMaker sends
IMAGE COMMAND …  COMMAND in its place (a shell, a script)
"""

import os
import sys
from collections.abc import Callable, Sequence

from berth.runtime.log import ERROR_PREFIX

USAGE, CANNOT_RUN, NOT_FOUND = 2, 126, 127  # exit codes as a shell has them


def run_command(
    arguments: Sequence[str],
    name: str,
    run: Callable[[], int],
    refusal: Callable[[Sequence[str]], str],
    not_run: Callable[[str, OSError], str],
) -> int:
    """Run the image's own command `name`, or let another replace this process; the exit code, 126 or 127 if that fails.

    refusal: why these arguments are refused; empty for those of another command. not_run: why another command could
    not be run.
    """
    if list(arguments) in ([], [name]):
        return run()
    if reason := refusal(arguments):
        return _refuse(reason, USAGE)
    try:
        os.execvp(arguments[0], list(arguments))
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        return _refuse(not_run(arguments[0], error), code)


def _refuse(sentence: str, code: int) -> int:
    print(f"{ERROR_PREFIX}{sentence}", file=sys.stderr)
    return code
