"""`smddprun COMMAND …`: mpirun starts it once per rank. It sets the missing variables and executes COMMAND.

Usage: mpirun -np 2 smddprun python train.py

Source: docs.aws.amazon.com/sagemaker/latest/dg/data-parallel-bring-your-own-container.html, and sagemaker-training's
smdataparallel.py, which builds the mpirun command.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from ..ranks import launch_variables

USAGE = "usage: smddprun COMMAND …, as in: mpirun -np 2 smddprun python train.py"


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to `environ`; transformers before 4.18 reads SMDATAPARALLEL_LOCAL_RANK.

    RuntimeError as in `launch_variables`.
    """
    added = launch_variables(environ)
    return {**added, "SMDATAPARALLEL_LOCAL_RANK": added["LOCAL_RANK"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Returns only if it does not execute COMMAND: 0 after --help, 2 for a wrong call or
    environment, 127 for a missing program.
    """
    command = list(sys.argv[1:] if arguments is None else arguments)
    if not command or command[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr if not command else sys.stdout)
        return 0 if command else 2
    program = shutil.which(command[0])
    if program is None:
        print(f"smddprun: program {command[0]} not found; pass a program on PATH, or its path.", file=sys.stderr)
        return 127
    try:
        environ = {**os.environ, **variables(os.environ)}
    except RuntimeError as error:
        print(f"smddprun: {error}", file=sys.stderr)
        return 2
    os.execve(program, command, environ)


if __name__ == "__main__":
    sys.exit(main())
