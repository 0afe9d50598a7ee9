"""The order in which the ranks of a pipeline work."""

from collections.abc import Mapping, Sequence

import pytest

from berth.smdistributed.modelparallel.torch.visits import Turn, Visit, order_of_visits


def chain(ranks: int) -> tuple[Visit, ...]:
    """A microbatch that goes through all ranks, to the first one for the loss, and back."""
    forward = [Visit(rank, backward=False) for rank in (*range(ranks), 0)]
    return (*forward, *(Visit(rank, backward=True) for rank in reversed(range(ranks))))


def names(visits: Sequence[Visit], turns: Sequence[Turn]) -> str:
    """The turns of a rank: F, B or L (loss) and the microbatch."""
    middle = visits.index(Visit(0, backward=False), 1)
    kinds = ["L" if index == middle else "B" if each.backward else "F" for index, each in enumerate(visits)]
    return " ".join(f"{kinds[index]}{microbatch}" for microbatch, index in turns)


def makespan(visits: Sequence[Visit], order: Mapping[int, Sequence[Turn]]) -> int:
    """The time of a step in which ranks keep the order strictly; forward takes 1, backward 2 and the loss nothing."""
    end: dict[Turn, int] = {}
    free, left = dict.fromkeys(order, 0), {rank: list(turns) for rank, turns in order.items()}
    while any(left.values()):
        rank, turn = next((r, t[0]) for r, t in left.items() if t and (not t[0][1] or (t[0][0], t[0][1] - 1) in end))
        left[rank].pop(0)
        microbatch, index = turn
        is_loss = rank == 0 and 0 < index < len(visits) - 1
        begin = max(free[rank], end.get((microbatch, index - 1), 0))
        free[rank] = end[turn] = begin + (0 if is_loss else 2 if visits[index].backward else 1)
    return max(end.values())


def test_order_for_two_ranks() -> None:
    order = order_of_visits(chain(2), 5, 4, forward_first=False)
    assert {rank: names(chain(2), turns) for rank, turns in order.items()} == {
        0: "F0 F1 L0 F2 L1 F3 B0 B1 L2 L3 F4 B2 B3 L4 B4",
        1: "F0 F1 B0 B1 F2 F3 B2 B3 F4 B4",
    }


def test_forward_first_takes_forward_visits_while_there_are_any() -> None:
    order = order_of_visits(chain(3), 4, 4, forward_first=True)
    assert names(chain(3), order[0]) == "F0 F1 F2 L0 F3 L1 L2 L3 B0 B1 B2 B3"
    assert names(chain(3), order[2]) == "F0 F1 F2 B0 F3 B1 B2 B3"


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("microbatches", [8, 16])
@pytest.mark.parametrize("forward_first", [False, True])
def test_order_reaches_nine_tenths_of_the_ideal_pipeline(ranks: int, microbatches: int, forward_first: bool) -> None:
    """Requests in the order in which they become known reach half of it on four ranks."""
    visits = chain(ranks)
    order = order_of_visits(
        visits, microbatches, microbatches if forward_first else ranks + 2, forward_first=forward_first
    )
    assert 3 * (microbatches + ranks - 1) >= 0.9 * makespan(visits, order)


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 6, 8])
def test_no_rank_has_more_open_microbatches_than_allowed(at_a_time: int) -> None:
    visits = chain(4)
    for rank, turns in order_of_visits(visits, 8, at_a_time, forward_first=False).items():
        own = [index for index, each in enumerate(visits) if each.rank == rank]
        open_now, most = set(), 0
        for microbatch, index in turns:
            open_now.add(microbatch)
            most = max(most, len(open_now))
            if index == own[-1]:
                open_now.remove(microbatch)
        assert most <= max(1, at_a_time - rank)


def test_every_visit_has_one_turn_even_if_ranks_are_visited_several_times() -> None:
    forward = [Visit(rank, backward=False) for rank in (0, 2, 1, 2, 0, 1, 0)]
    visits = (*forward, *(Visit(each.rank, backward=True) for each in reversed(forward)))
    order = order_of_visits(visits, 6, 2, forward_first=False)
    assert sorted(turn for turns in order.values() for turn in turns) == [
        (microbatch, index) for microbatch in range(6) for index in range(len(visits))
    ]
    assert makespan(visits, order)  # which raises StopIteration if the order can't be kept


def test_no_microbatch_overtakes_another_one() -> None:
    """Otherwise running statistics would differ from those of one process."""
    visits = (*chain(3)[:3], Visit(1, backward=False), *chain(3)[3:])
    for turns in order_of_visits(visits, 8, 5, forward_first=False).values():
        for visit in range(len(visits)):
            own = [microbatch for microbatch, index in turns if index == visit]
            assert own == sorted(own)


def test_visits_without_a_backward_pass_have_an_order() -> None:
    visits = chain(3)[:4]
    order = order_of_visits(visits, 5, 2, forward_first=False)
    assert [len(turns) for turns in order.values()] == [10, 5, 5]
