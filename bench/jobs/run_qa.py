"""run_qa as one process of this machine, whose memory is watched."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMAND = (sys.executable, "-m", "berth.train.run_qa")


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job's exit code, log and seconds, and its peak memory in bytes."""

    code: int
    log: str
    seconds: float
    memory: int


def lay_out(base: Path, model: Path, hyperparameters: Mapping[str, str], name: str, data: str) -> None:
    """Create an /opt/ml in the folder `base` whose channel `train` has one file."""
    for folder in ("input/config", "input/data/train", "checkpoints"):
        (base / folder).mkdir(parents=True)
    (base / "input/config/hyperparameters.json").write_text(json.dumps(dict(hyperparameters)))
    (base / "input/data/train" / name).write_text(data)
    (base / "input/data/model").symlink_to(model)


def run(base: Path, field: str, stop: Callable[[], bool] = lambda: False, command: Sequence[str] = COMMAND) -> JobEnd:
    """Run the job in `base`; kill it as soon as `stop` returns True. field: the memory field of /proc/PID/status."""
    began, memory, log = time.monotonic(), 0, base / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            env=clean_environment() | {"SAGEMAKER_BASE_DIR": str(base), "TMPDIR": str(base)},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        while process.poll() is None and not stop():
            memory = max(memory, _status_bytes(process.pid, field))
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    return JobEnd(process.returncode, log.read_text(), time.monotonic() - began, memory)


def clean_environment() -> dict[str, str]:
    """This process' variables without those that configure a job, and without access to the hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "SM_", "OMPI_"))}
    return {**kept, "HF_HUB_OFFLINE": "1"}


def _status_bytes(pid: int, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(f"{field}:")), 0)
