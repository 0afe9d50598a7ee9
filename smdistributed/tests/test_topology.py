"""Placement of ranks: the tables in AWS's documentation, and properties of any placement."""

from functools import partial
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.smdistributed.modelparallel.torch.topology import Topology

PLACEMENTS = ["cluster", "spread", *("".join(letters) for letters in permutations("DPT"))]
sizes = st.integers(1, 4)
topologies = st.builds(
    lambda rdp, pp, tp, placement: Topology(rdp * pp * tp, pp, tp, placement),
    sizes,
    sizes,
    sizes,
    st.sampled_from(PLACEMENTS),
)


def coordinates(topology: Topology) -> list[tuple[int, int, int]]:
    """The replica, partition and tensor-parallel rank of each rank."""
    d, p, t = (partial(topology.coordinate, letter) for letter in "DPT")
    return [(d(rank), p(rank), t(rank)) for rank in range(topology.world_size)]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("DPT", [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]),
        ("PTD", [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1), (0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1)]),
    ],
)
def test_coordinates_equal_documentation(placement: str, expected: list[tuple[int, int, int]]) -> None:
    assert coordinates(Topology(8, 2, 2, placement)) == expected


@pytest.mark.parametrize(
    ("placement", "mp_groups", "dp_groups"),
    [
        ("spread", ((0, 4), (1, 5), (2, 6), (3, 7)), ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("cluster", ((0, 1), (2, 3), (4, 5), (6, 7)), ((0, 2, 4, 6), (1, 3, 5, 7))),
    ],
)
def test_groups_equal_documentation(placement: str, mp_groups: object, dp_groups: object) -> None:
    topology = Topology(8, 2, 1, placement)
    assert topology.groups(topology.mp_group) == mp_groups
    assert topology.groups(topology.dp_group) == dp_groups


@pytest.mark.slow
@given(topologies)
def test_groups_are_disjoint_cover_all_ranks_and_have_one_size(topology: Topology) -> None:
    expected = {
        topology.pp_group: topology.pp,
        topology.tp_group: topology.tp,
        topology.rdp_group: topology.rdp,
        topology.mp_group: topology.pp * topology.tp,
        topology.dp_group: topology.tp * topology.rdp,
        topology.world_group: topology.world_size,
    }
    for group_of, size in expected.items():
        groups = topology.groups(group_of)
        assert sorted(rank for group in groups for rank in group) == list(range(topology.world_size))
        assert {len(group) for group in groups} == {size}


@given(topologies)
def test_coordinate_is_the_index_in_the_group(topology: Topology) -> None:
    for rank in range(topology.world_size):
        assert topology.pp_group(rank)[topology.coordinate("P", rank)] == rank
        assert topology.tp_group(rank)[topology.coordinate("T", rank)] == rank
        assert topology.rdp_group(rank)[topology.coordinate("D", rank)] == rank


@given(topologies)
def test_replica_has_each_partition_once_per_tensor_rank(topology: Topology) -> None:
    for group in topology.groups(topology.mp_group):
        partitions = sorted(topology.coordinate("P", rank) for rank in group)
        assert partitions == sorted(list(range(topology.pp)) * topology.tp)


@given(topologies)
def test_ranks_of_dp_group_have_the_same_partition(topology: Topology) -> None:
    for group in topology.groups(topology.dp_group):
        assert len({topology.coordinate("P", rank) for rank in group}) == 1


@given(topologies)
def test_last_letter_of_placement_changes_fastest(topology: Topology) -> None:
    order = {"cluster": "DPT", "spread": "TPD"}.get(topology.placement, topology.placement)
    sizes = {"D": topology.rdp, "P": topology.pp, "T": topology.tp}
    ranks = range(topology.world_size)
    found = [tuple(topology.coordinate(letter, rank) for letter in order) for rank in ranks]
    assert found == list(product(*(range(sizes[letter]) for letter in order)))


def test_indivisible_number_of_ranks_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 × 2 does not divide 6 ranks"):
        Topology(6, 2, 2)
