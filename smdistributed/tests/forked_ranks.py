"""A script that forks the ranks of a job from a process with the slow imports, which take longer than most jobs.

Usage: python forked_ranks.py SIZE MODULE,… SCRIPT [ARGUMENT…]

A rank's output goes to $RESULTS/output-RANK.txt. Exit code 1 if a rank fails.
"""

import importlib
import os
import runpy
import sys
from pathlib import Path

ALWAYS = ("torch", "torch.fx.experimental.symbolic_shapes")
"""A process' first backward pass imports the second one."""


def become(rank, path):
    """In the child: set the rank's variables and redirect its output to a file."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    output = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)


def run(script, *arguments):
    """Run a script like `python SCRIPT ARGUMENT…`."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def main(size, imports, *command):
    for name in (*ALWAYS, *filter(None, imports.split(","))):
        importlib.import_module(name)
    for rank in range(int(size)):
        if os.fork() == 0:
            become(rank, f"{os.environ['RESULTS']}/output-{rank}.txt")
            run(*command)
            sys.exit()
    ended = [os.wait()[1] for _ in range(int(size))]
    return int(any(ended))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
