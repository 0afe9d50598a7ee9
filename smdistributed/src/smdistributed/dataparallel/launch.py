"""`smddprun COMMAND …`: starts a rank, as mpirun calls it. Sets the variables that are missing, and becomes COMMAND.

Usage: mpirun -np 2 smddprun python train.py

Source: docs.aws.amazon.com/sagemaker/latest/dg/data-parallel-bring-your-own-container.html, and sagemaker-training's
smdataparallel.py, by which mpirun calls it.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from ..ranks import launch_variables

USAGE = "usage: smddprun COMMAND …, as in: mpirun -np 2 smddprun python train.py"


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What the rank gets on top of `environ`; SMDATAPARALLEL_LOCAL_RANK is what transformers before 4.18 reads.

    RuntimeError as `launch_variables`.
    """
    found = launch_variables(environ)
    return {**found, "SMDATAPARALLEL_LOCAL_RANK": found["LOCAL_RANK"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Returns only if there is nothing to become: 2 for a wrong call, 127 for no such program."""
    command = list(sys.argv[1:] if arguments is None else arguments)
    if not command or command[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr if not command else sys.stdout)
        return 0 if command else 2
    program = shutil.which(command[0])
    if program is None:
        print(f"smddprun: there is no program {command[0]}; name one that is on PATH, or its path.", file=sys.stderr)
        return 127
    try:
        environ = {**os.environ, **variables(os.environ)}
    except RuntimeError as error:
        print(f"smddprun: {error}", file=sys.stderr)
        return 2
    os.execve(program, command, environ)


if __name__ == "__main__":
    sys.exit(main())
