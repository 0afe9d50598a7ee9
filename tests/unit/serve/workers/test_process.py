"""A worker after CUDA errors. Test machines have no GPU, so a double of the engine raises torch's errors."""

import json
import subprocess
import sys

import pytest

from berth.serve.workers.process import is_cuda_error

ACCESS = "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in https://docs…"
RUN = """
import json, sys
from types import SimpleNamespace
from berth.serve.workers import process
from berth.serve.workers.messages import Batch, BatchError

error, lost = json.loads(sys.argv[1])

class Engine:
    def logits(self, rows, *, alone):
        raise RuntimeError(error)

def warm_up(loaded):
    if lost:
        raise RuntimeError(error)

process.warm_up = warm_up
channel = SimpleNamespace(send=lambda message: print(type(message).__name__, message.error.splitlines()[0], flush=True))
process.run(channel, SimpleNamespace(engine=Engine()), Batch(1, [], False))
print("lives on")
"""


def run(error: str, *, lost: bool) -> tuple[int, list[str], str]:
    command = [sys.executable, "-P", "-c", RUN, json.dumps([error, lost])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_worker_exits_if_its_gpu_is_lost() -> None:
    code, output, log = run(ACCESS, lost=True)
    assert code == 1
    assert output == ["BatchError RuntimeError: CUDA error: an illegal memory access was encountered"]
    assert "the model can't use its GPU any more (CUDA error: an illegal memory access was encountered)" in log


@pytest.mark.parametrize(
    "error", ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling …"]
)
def test_worker_survives_a_cuda_error_after_which_the_gpu_works(error: str) -> None:
    assert run(error, lost=False)[:2] == (0, [f"BatchError RuntimeError: {error}", "lives on"])


def test_gpu_is_not_checked_after_other_errors() -> None:
    assert run("no rows", lost=True)[:2] == (0, ["BatchError RuntimeError: no rows", "lives on"])


def test_is_cuda_error() -> None:
    accelerator = type("AcceleratorError", (RuntimeError,), {})
    assert is_cuda_error(accelerator("uncorrectable ECC error encountered"))
    assert is_cuda_error(RuntimeError(ACCESS))
    assert is_cuda_error(RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"))
    assert not is_cuda_error(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert not is_cuda_error(ValueError("a bad question"))
