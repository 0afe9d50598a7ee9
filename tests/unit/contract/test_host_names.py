"""Short lists of host names."""

import pytest

from berth.contract.host_names import listed


def algo(*numbers: int) -> list[str]:
    return [f"algo-{number}" for number in numbers]


@pytest.mark.parametrize(
    ("hosts", "line"),
    [
        ([], ""),
        (algo(2), "algo-2"),
        (algo(10, 2), "algo-2, algo-10"),
        (sorted(algo(*range(1, 41))), "algo-1, algo-2, algo-3, algo-4, algo-5, algo-6 and 34 more"),
        (["algo-2-xy", "algo-10-ab", "algo-3-cd"], "algo-2-xy, algo-3-cd, algo-10-ab"),
        (["b", "127.0.0.1", "a1", "a"], "127.0.0.1, a, a1, b"),
    ],
)
def test_listed_hosts_are_sorted_and_cut(hosts: list[str], line: str) -> None:
    assert listed(hosts) == line
