"""Runs two ranks of a program on this machine, for the tests."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.ports import free_port

START = "from berth.train.startup import start_hook; start_hook.start()"
CREATE_EVENTS = "open('events', 'w').close()"
"""Creates the file for BERTH_RANK_EVENTS, as a rank's wrapper does."""


def run_ranks(text: str, folder: Path, code: int = 0, hook: str = START, **environ: str) -> list[str]:
    """The output of two ranks that run `hook` and `text`, each in its own folder, and end with exit code `code`."""
    ranks, port = [], free_port()
    for rank in range(2):
        (folder / str(rank)).mkdir(parents=True)
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}, **environ}
        environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
        command = [sys.executable, "-P", "-c", f"{hook}\n{textwrap.dedent(text)}"]
        pipe = subprocess.PIPE
        ranks.append(subprocess.Popen(command, cwd=folder / str(rank), env=environment, stdout=pipe, text=True))
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [code, code]
    return outputs
