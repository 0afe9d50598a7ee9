"""How many hosts are told in one line."""

import pytest

from berth.train.host_names import listed


def algo(*numbers: int) -> list[str]:
    return [f"algo-{number}" for number in numbers]


@pytest.mark.parametrize(
    ("hosts", "line"),
    [
        ([], ""),
        (algo(2), "algo-2"),
        (algo(10, 2), "algo-2, algo-10"),
        (sorted(algo(*range(1, 41))), "algo-1 to algo-40"),
        (algo(9, 10, 11, 2, 3), "algo-2, algo-3, algo-9 to algo-11"),
        (algo(*range(1, 40, 2)), "algo-1, algo-3, algo-5, algo-7, algo-9, algo-11 and 14 more"),
        (["algo-2-xy", "algo-10-ab", "algo-3-cd"], "algo-2-xy, algo-3-cd, algo-10-ab"),
        (["b", "127.0.0.1", "a1", "a"], "127.0.0.1, a, a1, b"),
        (["h08", "h09", "h10"], "h08, h09, h10"),
    ],
)
def test_hosts_are_listed_by_number_and_folded(hosts: list[str], line: str) -> None:
    assert listed(hosts) == line
