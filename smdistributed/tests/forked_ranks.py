"""Runs as a script: the ranks of a job, children of one process that has imported what takes longer than most jobs.

Usage: python forked_ranks.py SIZE MODULE,… SCRIPT [ARGUMENT…]

What a rank prints goes to $RESULTS/said-RANK.txt. Exit code 1 if a rank has another than 0.
"""

import importlib
import os
import runpy
import sys
from pathlib import Path

ALWAYS = ("torch", "torch.fx.experimental.symbolic_shapes")
"""The second is imported by a process' first backward pass."""


def become(rank, path):
    """In the child: the rank's environment, and its output in a file."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    said = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)


def run(script, *arguments):
    """As `python SCRIPT ARGUMENT…` does."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def main(size, imports, *command):
    for name in (*ALWAYS, *filter(None, imports.split(","))):
        importlib.import_module(name)
    for rank in range(int(size)):
        if os.fork() == 0:
            become(rank, f"{os.environ['RESULTS']}/said-{rank}.txt")
            run(*command)
            sys.exit()
    ended = [os.wait()[1] for _ in range(int(size))]
    return int(any(ended))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
