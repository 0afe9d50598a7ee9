"""The image's own check of a machine's GPUs: what they do, beside what they could do, as a table and as JSON.

Usage: python -P -m berth.runtime.gpu.bench.check [--json FILE] [--device cpu] [--only CHECK …] [--date DATE]

all-reduce       collectives.py  the bandwidth between the GPUs, over NCCL
matrix-product   compute.py      16-bit products beside the chip's peak
training-step    compute.py      a step of a BERT-large for question answering
torch-compile    compute.py      the compiler, from empty caches
inference        answering.py    the engine of berth.serve

Each runs in a process of its own (isolate.py), so that none can harm the next. The table goes to stdout, progress to
stderr. Exit code 1 if a check failed or there is no GPU; `--device cpu` walks the same way without one, small and
without limits to compare with.
"""

import argparse
import importlib.util
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from berth.runtime.gpu import driver, start
from berth.runtime.gpu.bench import collectives, compute, inference_check, machine
from berth.runtime.gpu.bench.isolate import Ended, isolated
from berth.runtime.gpu.bench.record import Measured, Record, Status, failed, judge, skipped, table
from berth.runtime.log import PREFIX

DESCRIBE_LIMIT = 120.0
# No check asks the network, and a library's hub client must not try.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
# With a GPU in the machine too, `--device cpu` is about the CPU.
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, what measures (given the device), its time limit in seconds, and the modules that it needs."""

    name: str
    measure: Callable[[str], Measured]
    limit: float
    needs: tuple[str, ...] = ()


CHECKS = (
    Check("all-reduce", collectives.all_reduce, 300.0),
    Check("matrix-product", compute.matrix_product, 180.0),
    Check("training-step", compute.training_step, 300.0, ("transformers",)),
    Check("torch-compile", compute.torch_compile, 300.0),
    Check("inference", inference_check.inference, 180.0, ("berth.serve.handler", "transformers", "numpy")),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the checks and says what they found; the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    start.unblock_signals()
    asked = _parser().parse_args(arguments)
    try:
        return _run(asked)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130


def _run(asked: argparse.Namespace) -> int:
    if not there("torch"):
        return _refuse("torch is not installed here: install it, or run this in one of the kit's images.")
    if asked.json and not os.access(asked.json.absolute().parent, os.W_OK):
        return _refuse(f"{asked.json} can't be written: name a file in a folder that is there and yours.")
    if asked.device == "cuda" and driver.count_gpus(Path("/"), {}):
        # As `train` and `serve` begin; where cuda-compat is taken, this program begins anew.
        found = start.check(driver.torch_cuda(), driver.count_gpus(Path("/"), os.environ), _say)
        if found.refusal:
            return _refuse(found.refusal)
    environment = OFFLINE | collectives.ENVIRONMENT | (HIDDEN if asked.device == "cpu" else {})
    seen = isolated(partial(machine.describe, asked.device), DESCRIBE_LIMIT, environment)
    refusal = unusable(asked.device, seen)
    if refusal:
        return _refuse(refusal)
    records = []
    for check in CHECKS:
        if not asked.only or check.name in asked.only:
            _say(f"{check.name} …")
            records.append(carry_out(check, asked.device, environment))
            if "traceback" in records[-1].details:
                print(records[-1].details["traceback"], file=sys.stderr, flush=True)
    print(machine.title(seen.value))
    print(table(records), flush=True)
    if asked.json:
        text = json.dumps(report(asked.date, asked.device, seen.value, records), indent=2, ensure_ascii=False)
        try:
            asked.json.write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            return _refuse(f"{asked.json} can't be written ({error.strerror}): name another file.")
    return 1 if any(record.status is Status.FAILED for record in records) else 0


def carry_out(check: Check, device: str, environment: dict[str, str]) -> Record:
    """The record of one check, whatever becomes of it."""
    for module in check.needs:
        if not there(module):
            return skipped(check.name, absence(module))
    return record(check, device, isolated(partial(check.measure, device), check.limit, environment))


def record(check: Check, device: str, ended: Ended) -> Record:
    """The record of a check by how its process ended.

    Without a GPU torch.compile needs a C++ compiler, which no image has: only there its lack is no failure.
    """
    if isinstance(ended.value, Measured):
        return judge(check.name, ended.value)
    if device == "cpu" and "No working C++ compiler" in ended.error:
        return skipped(check.name, "torch.compile needs a C++ compiler on a CPU, and there is none here")
    return failed(check.name, ended.error, ended.trace)


def there(module: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def absence(module: str) -> str:
    """Why a check that needs a module is skipped."""
    if module.startswith("berth.serve"):
        return "berth.serve is not in this image: the inference image has it"
    return f"{module} is not installed here"


def unusable(device: str, seen: Ended) -> str:
    """Why the checks can't be made on `device`, one sentence with what to do; empty if they can."""
    if seen.error:
        return f"torch can't be used here ({seen.error}): install it anew, in a build for this machine."
    if device == "cpu" or seen.value["devices"]:
        return ""
    version = seen.value["versions"]
    if version["cuda"] is None:
        return (
            f"torch {version['torch']} is a CPU build: use an image of a CUDA profile (cu130, cu124), or try the check "
            "without a GPU by --device cpu."
        )
    return (
        "There is no GPU that torch can use here: run this on a machine where nvidia-smi lists one, pass it to the "
        "container with --gpus all, or try the check without a GPU by --device cpu."
    )


def report(date: str, device: str, seen: dict[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    """All of it in plain types: when, by which command, on what, and what was found."""
    return {
        "date": date,
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "device": device,
        **seen,
        "checks": [each.as_dict() for each in records],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -P -m berth.runtime.gpu.bench.check",
        description="Measure this machine's GPUs; exit code 1 if a check fails.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found to a file")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same, small, without a GPU")
    parser.add_argument(
        "--only",
        action="append",
        choices=[check.name for check in CHECKS],
        metavar="CHECK",
        help=f"only this check, may be given many times: {', '.join(check.name for check in CHECKS)}",
    )
    parser.add_argument(
        "--date", default=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), help="the date for the JSON; now"
    )
    return parser


def _say(line: str) -> None:
    print(f"{PREFIX}{line}", file=sys.stderr, flush=True)


def _refuse(sentence: str) -> int:
    _say(f"error: {sentence}")
    return 1


def _terminated(signum: int, frame: FrameType | None) -> None:
    """SIGTERM as an exception, so that a running check is ended: PID 1 of a container would ignore it."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
