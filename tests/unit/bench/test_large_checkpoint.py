"""Losses that bench/large_checkpoint.py detects."""

import signal
from dataclasses import replace

from bench.jobs.run_qa import JobEnd
from bench.large_checkpoint import Measured, faults

METRICS = {"weights_sha256": "0123456789abcdef", "seconds": {"training": 3.2, "saving": 4.4}}
RESUMED = JobEnd(0, "going on from FOLDER/checkpoint-1-0a1b2c3d\nstep 2 of 2\n", 12.0, 2_000_000_000)
KILLED = replace(RESUMED, code=-signal.SIGKILL)
MEASURED = Measured(
    model=1_300_000_000,
    checkpoint=4_000_000_000,
    whole=RESUMED,
    killed=KILLED,
    restarted=RESUMED,
    partial_bytes=2_100_000_000,
    complete=("checkpoint-1-0a1b2c3d",),
    metrics=(METRICS, METRICS),
)


def test_each_loss_is_reported() -> None:
    assert faults(MEASURED) == []
    for loss, words in (
        ({"complete": ()}, "the complete checkpoints are []"),
        ({"complete": ("checkpoint-1-aa", "checkpoint-2-aa")}, "checkpoint-2-aa"),
        ({"killed": RESUMED}, "exit code 0"),
        ({"restarted": replace(RESUMED, code=1)}, "ended with 1"),
        ({"restarted": replace(RESUMED, log="step 1 of 2")}, "did not resume"),
        ({"metrics": (METRICS, {})}, "the weights differ"),
    ):
        (fault,) = faults(replace(MEASURED, **loss))
        assert words in fault
