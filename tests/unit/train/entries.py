"""Starts the entry of several hosts of a job on this machine; the names of two are 127.0.0.1 and localhost."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.ports import free_port

HOSTS = ["127.0.0.1", "localhost"]
PROGRAM = """
import os, sys, qa
print("hosts", os.environ["SM_CURRENT_HOST"], qa.OWN, sys.argv[1:], flush=True)
if os.environ["SM_CURRENT_HOST"] == os.environ.get("RAISE"):
    qa.fail()
"""
OWN = "OWN = 'own qa'\ndef fail():\n    raise ValueError('no rows')\n"
START = """
import sys
from pathlib import Path
from berth.train.entry import train
from berth.train.launching.host import EntryPaths
sys.exit(train(EntryPaths(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))
"""

# Starts the entry on a host with one GPU, in an image whose torch is built for CUDA 13.
ON_A_GPU = START.replace(
    "sys.exit(",
    """from berth.train import entry
from berth.train.planning.hardware import Hardware
entry.probe = lambda: Hardware(1, "13.0", 4, None, ("lo",))
sys.exit(""",
)


def lay_out(folder: Path, host: str, hosts: list[str], program: str = PROGRAM) -> Path:
    """Write one host's /opt/ml; returns its path."""
    root = folder / host
    config = root / "input" / "config"
    config.mkdir(parents=True)
    (root / "code").mkdir()
    (root / "code" / "train.py").write_text(program)
    (root / "code" / "qa.py").write_text(OWN)
    hyperparameters = {"sagemaker_program": '"train.py"', "epochs": "3"}
    (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
    (config / "resourceconfig.json").write_text(json.dumps({"hosts": hosts, "current_host": host}))
    return root


def start_hosts(
    folder: Path,
    hosts: list[str],
    program: str = PROGRAM,
    own: Mapping[str, Mapping[str, str]] = {},
    starts: Mapping[str, str] = {},
    **environ: str,
) -> tuple[list[subprocess.Popen[str]], list[Path]]:
    """Start the entry of every host; returns the processes and the paths of their failure files.

    own: host → variables of this host only. starts: host → code that starts its entry instead of START.
    """
    port = free_port()
    roots = [lay_out(folder, host, hosts, program) for host in hosts]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", starts.get(root.name, START)),
                *(str(root), str(folder / f"run-{root.name}"), str(port)),
            ],
            env={
                **os.environ,
                "SAGEMAKER_BASE_DIR": str(root),
                "BERTH_RENDEZVOUS_TIMEOUT": "30",
                **environ,
                **own.get(root.name, {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for root in roots
    ]
    return processes, [root / "output" / "failure" for root in roots]
