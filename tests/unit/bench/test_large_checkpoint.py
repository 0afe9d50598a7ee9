"""What bench/large_checkpoint.py takes for a loss."""

import signal
from dataclasses import replace

from bench.jobs.run_qa import Ended
from bench.large_checkpoint import Measured, faults

THROUGH = {"weights_sha256": "0123456789abcdef", "seconds": {"training": 3.2, "saving": 4.4}}
RAN = Ended(0, "going on from FOLDER/checkpoint-1-0a1b2c3d\nstep 2 of 2\n", 12.0, 2_000_000_000)
KILLED = replace(RAN, code=-signal.SIGKILL)
FOUND = Measured(
    model=1_300_000_000,
    checkpoint=4_000_000_000,
    whole=RAN,
    killed=KILLED,
    again=RAN,
    half=2_100_000_000,
    left=("checkpoint-1-0a1b2c3d",),
    metrics=(THROUGH, THROUGH),
)


def test_each_loss_is_a_fault() -> None:
    assert faults(FOUND) == []
    for loss, words in (
        ({"left": ()}, "the whole checkpoints are []"),
        ({"left": ("checkpoint-1-aa", "checkpoint-2-aa")}, "checkpoint-2-aa"),
        ({"killed": RAN}, "exit code 0"),
        ({"again": replace(RAN, code=1)}, "ended with 1"),
        ({"again": replace(RAN, log="step 1 of 2")}, "did not go on"),
        ({"metrics": (THROUGH, {})}, "the weights are not those"),
    ):
        (fault,) = faults(replace(FOUND, **loss))
        assert words in fault
