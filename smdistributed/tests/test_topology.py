"""Placement of ranks: the tables in AWS's documentation, and properties of any placement."""

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


@given(topologies, st.integers(0))
def test_group_has_the_ranks_that_differ_only_in_its_letters(topology: Topology, number: int) -> None:
    groups = {
        "P": topology.pp_group,
        "T": topology.tp_group,
        "D": topology.rdp_group,
        "PT": topology.mp_group,
        "DT": topology.dp_group,
        "DPT": topology.world_group,
    }
    ranks = range(topology.world_size)
    rank = ranks[number % len(ranks)]
    for letters, group_of in groups.items():
        others = [[topology.coordinate(letter, each) for letter in "DPT" if letter not in letters] for each in ranks]
        assert group_of(rank) == tuple(each for each in ranks if others[each] == others[rank])


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
