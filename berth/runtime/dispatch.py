"""How process 1 of an image handles its arguments.

IMAGE            runs the image's own command, `train` or `serve`
IMAGE train      the same; SageMaker passes this
IMAGE COMMAND …  runs COMMAND instead (a shell, a script)
"""

import os
import sys
from collections.abc import Callable, Sequence

from berth.runtime.log import ERROR_PREFIX

USAGE, CANNOT_RUN, NOT_FOUND = 2, 126, 127  # a shell's exit codes


def run_command(
    arguments: Sequence[str],
    name: str,
    run: Callable[[], int],
    refusal: Callable[[Sequence[str]], str],
    not_run: Callable[[str, OSError], str],
) -> int:
    """Run the image's own command `name`, or execute another command in place of this process.

    Returns the exit code; 126 or 127 if another command can't be executed. refusal: returns the error for invalid
    arguments, empty for another command. not_run: returns the error of a command that can't be executed.
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
