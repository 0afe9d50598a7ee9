"""Starts torchrun from Python, as scripts for one process do."""

import subprocess
import sys

subprocess.run(
    [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "work.py"],
    check=True,
)
