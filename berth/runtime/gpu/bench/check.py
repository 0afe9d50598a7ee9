"""Measures a machine's GPUs and compares them with the hardware's limits; prints a table and writes JSON.

Usage: python -P -m berth.runtime.gpu.bench.check [--json FILE] [--device cpu] [--only CHECK …]

all-reduce       collectives.py  the bandwidth between the GPUs, over NCCL
matrix-product   compute.py      16-bit products next to the chip's peak
training-step    compute.py      a step of a BERT-large for question answering
inference        berth.serve.gpu_check, which only the inference image has; elsewhere the check is skipped

Each check runs in a separate process (child.py), so that it can't affect the next one. The table goes to stdout,
progress to stderr. Exit code 1 if a check failed or there is no GPU. `--device cpu` runs small checks without a
GPU and without limits.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from berth.contract import gpu_hosts
from berth.runtime import subprocesses
from berth.runtime.gpu import driver, start
from berth.runtime.gpu.bench import collectives, machine
from berth.runtime.gpu.bench.record import Check, Measured, Record, Status, failed, judge, skipped, table
from berth.runtime.log import ERROR_PREFIX, PREFIX
from berth.runtime.software import is_installed

DESCRIBE_LIMIT = 120.0
# No check needs the network, and the libraries' hub clients must not use it.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
# `--device cpu` hides the GPUs of the machine.
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
INFERENCE = "berth.serve.gpu_check"
CHECKS = (
    Check("all-reduce", "berth.runtime.gpu.bench.collectives:all_reduce", 300.0),
    Check("matrix-product", "berth.runtime.gpu.bench.compute:matrix_product", 180.0),
    Check("training-step", "berth.runtime.gpu.bench.compute:training_step", 300.0, ("transformers",)),
    Check("inference", f"{INFERENCE}:inference", 180.0, (INFERENCE, "transformers", "numpy")),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the checks and prints the results; returns the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    start.unblock_signals()
    parser = _parser()
    options = parser.parse_args(arguments)
    names = [check.name for check in CHECKS]
    if unknown := [name for name in options.only or () if name not in names]:
        parser.error(f"there is no check {unknown[0]}; choose from {', '.join(names)}")
    try:
        return _run([check for check in CHECKS if not options.only or check.name in options.only], options)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130


def _run(checks: Sequence[Check], options: argparse.Namespace) -> int:
    if not is_installed("torch"):
        return _refuse("torch is not installed here: install it, or run this in one of the kit's images.")
    if options.json and not os.access(options.json.absolute().parent, os.W_OK):
        return _refuse(f"{options.json} can't be written: name a file in an existing folder that you may write to.")
    if options.device == "cuda" and driver.count_gpus(Path("/"), {}):
        # The same check as at the start of `train` and `serve`; with cuda-compat this program is executed again.
        usable = start.check(driver.torch_cuda(), driver.count_gpus(Path("/"), os.environ), _say)
        if usable.refusal:
            return _refuse(usable.refusal)
    environment = OFFLINE | collectives.ENVIRONMENT | (HIDDEN if options.device == "cpu" else {})
    described, error = measure("berth.runtime.gpu.bench.machine:describe", options.device, DESCRIBE_LIMIT, environment)
    if refusal := unusable(options.device, described, error):
        return _refuse(refusal)
    records = []
    for check in checks:
        _say(f"{check.name} …")
        records.append(run_check(check, options.device, environment))
    print(machine.title(described))
    print(table(records), flush=True)
    if options.json:
        text = json.dumps(report(options.device, described, records), indent=2, ensure_ascii=False)
        options.json.write_text(f"{text}\n", encoding="utf-8")
    return 1 if any(record.status is Status.FAILED for record in records) else 0


def run_check(check: Check, device: str, environment: dict[str, str]) -> Record:
    """Run a check; returns its record, also if it is skipped or fails."""
    for module in check.needs:
        if not is_installed(module):
            return skipped(check.name, why_skipped(module))
    value, error = measure(check.function, device, check.limit, environment)
    return failed(check.name, error) if error else judge(check.name, Measured(**value))


def measure(function: str, device: str, limit: float, environment: dict[str, str]) -> tuple[Any, str]:
    """What a function returns in a child process, as plain types, or its error as one line."""
    command = [sys.executable, "-P", "-m", "berth.runtime.gpu.bench.child", function, device]
    try:
        done = subprocesses.run(command, limit, {**os.environ, **environment}, stderr=2)
    except subprocess.TimeoutExpired:
        return None, f"it took longer than {limit:.0f} s and was stopped"
    if done.returncode < 0:
        return None, f"it was killed by {signal.Signals(-done.returncode).name}"
    if not done.stdout:
        return None, f"it ended with exit code {done.returncode} before it had a result"
    result = json.loads(done.stdout)
    return result.get("value"), result.get("error", "")


def why_skipped(module: str) -> str:
    """Why a check that needs a module is skipped."""
    if module == INFERENCE:
        return "berth.serve is not in this image: the inference image has it"
    return f"{module} is not installed here"


def unusable(device: str, described: Any, error: str = "") -> str:
    """The error if the checks can't run on `device`, with what to do; empty if they can. error: of `described`."""
    if error:
        return f"torch can't be used here ({error}): install it again, in a build for this machine."
    if device == "cpu" or described["devices"]:
        return ""
    version = described["versions"]
    if version["cuda"] is None:
        return (
            f"torch {version['torch']} is a CPU build: use an image of a CUDA profile "
            f"({', '.join(gpu_hosts.PROFILES)}), or try the check without a GPU by --device cpu."
        )
    return (
        "There is no GPU that torch can use here: run this on a machine where nvidia-smi lists one, pass it to the "
        "container with --gpus all, or try the check without a GPU by --device cpu."
    )


def report(device: str, described: dict[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    """The report in plain types: date, command, machine and results."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "device": device,
        **described,
        "checks": [each.as_dict() for each in records],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -P -m berth.runtime.gpu.bench.check",
        description="Measure this machine's GPUs; exit code 1 if a check fails.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: small checks without a GPU")
    names = ", ".join(check.name for check in CHECKS)
    parser.add_argument("--only", action="append", metavar="CHECK", help=f"run only this check (repeatable): {names}")
    return parser


def _say(line: str) -> None:
    print(f"{PREFIX}{line}", file=sys.stderr, flush=True)


def _refuse(sentence: str) -> int:
    print(f"{ERROR_PREFIX}{sentence}", file=sys.stderr, flush=True)
    return 1


def _terminated(signum: int, frame: FrameType | None) -> None:
    """Turn SIGTERM into an exception, which ends a running check; process 1 of a container would ignore the signal."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
