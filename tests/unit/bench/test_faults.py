"""Verdicts and rows of the table of faults."""

import pytest

from bench.jobs.fault_table import FAULTS, Fault, HostEnd, right, rows

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


def test_hosts_with_equal_results_share_a_row() -> None:
    fault = Fault("host algo-2 was lost", kills=("algo-2",))
    lost = "host algo-2 was lost while the job ran (a | b)"
    ends = [
        HostEnd("algo-1", 1.0, 1, lost, killed=False),
        HostEnd("algo-2", 0.1, 137, "", killed=True),
        HostEnd("algo-3", 1.25, 1, lost, killed=False),
        HostEnd("algo-4", 16.0, 1, "", killed=False),
    ]
    assert rows("a host", fault, 4, ends) == [
        "| a host | 4 | algo-1, algo-3 | 1.2 | 1 | host algo-2 was lost while the job ran (a \\| b) | yes |",
        "| a host | 4 | algo-2 | 0.1 | 137 | (was killed) | – |",
        "| a host | 4 | algo-4 | 16.0 | 1 | (nothing) | **no** |",
    ]
