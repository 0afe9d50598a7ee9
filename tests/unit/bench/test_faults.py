"""Verdicts of the table of faults."""

import pytest

from bench.jobs.fault_table import FAULTS, HostEnd, right

RAISES = FAULTS["a rank raises"]
SENTENCE = "rank 1 on algo-2: ValueError: no rows (raised at train.py:8)"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (HostEnd("algo-1", 1.2, 1, SENTENCE, killed=False), True),
        (HostEnd("algo-1", 15.2, 1, SENTENCE, killed=False), False),
        (HostEnd("algo-1", 1.2, 0, SENTENCE, killed=False), False),
        (HostEnd("algo-1", 1.2, 1, "", killed=False), False),
        (HostEnd("algo-1", 1.2, 1, "rank 0 on algo-1 was killed by SIGKILL", killed=False), False),
        (HostEnd("algo-1", 0.1, 137, "", killed=True), True),
    ],
)
def test_host_must_fail_in_time_with_expected_reason(end: HostEnd, expected: bool) -> None:
    assert right(RAISES, end) is expected
