"""Whose turn it is."""

import threading
import time
from contextlib import nullcontext

import pytest

from berth.smdistributed.modelparallel.torch.baton import Baton, Halted


def turns(*, in_turn: bool, slow: float, backward: bool) -> list[int]:
    """Three threads that wait once each, the first for long, on their way forward or back; who runs when."""
    baton, seen = Baton(in_turn=in_turn), list[int]()
    places = [baton.line_up(1, index) for index in range(3)]

    def body(index: int) -> None:
        baton.take(places[index])
        seen.append(index)
        with baton.backward(index) if backward else nullcontext():
            baton.wait(lambda: time.sleep(0.0 if index else slow), 0, index)
        seen.append(index)
        baton.close(index)
        baton.give_up()

    threads = [threading.Thread(target=body, args=(index,)) for index in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    return seen


@pytest.mark.parametrize("backward", [False, True])
def test_in_turn_does_not_depend_on_who_waits_longer(backward: bool) -> None:
    for slow in (0.2, 0.0):
        assert turns(in_turn=True, slow=slow, backward=backward) == [0, 1, 2, 0, 1, 2]


def test_on_the_way_back_who_waits_does_not_keep_others_from_running() -> None:
    assert turns(in_turn=False, slow=0.3, backward=True)[-1] == 0


def test_on_the_way_forward_nobody_is_overtaken() -> None:
    """Who waits does not keep others from beginning."""
    assert turns(in_turn=False, slow=0.3, backward=False) == [0, 1, 2, 0, 1, 2]


def opened(count: int) -> Baton:
    """With so many microbatches that have begun; the last one has the baton."""
    baton = Baton(in_turn=False)
    for index, place in enumerate([baton.line_up(1, index) for index in range(count)]):
        baton.take(place)
        if index < count - 1:
            baton.give_up()
    return baton


def test_a_station_without_a_wait_is_passed_at_once_unless_an_earlier_one_is_behind() -> None:
    baton = opened(3)
    assert [baton.passes(each) for each in (1, 0, 0, 1, 1, 1, 2)] == [False, True, True, True, True, False, True]


def test_who_is_on_the_way_back_or_done_holds_up_nobody() -> None:
    baton = opened(2)
    assert not baton.passes(1)
    with baton.backward(0):
        assert baton.passes(1)
    assert not baton.passes(1)
    baton.close(0)
    assert baton.passes(1)


def test_a_way_back_is_no_station() -> None:
    """Two forward and backward passes in a microbatch: the second forward pass begins where the first ended."""
    baton = opened(2)
    with baton.backward(0):
        baton.give_up()
        baton.wait(lambda: None, 0, 0)
        assert baton.passes(0)
    assert not baton.passes(1)


def test_nobody_runs_once_it_is_stopped() -> None:
    baton = Baton(in_turn=False)
    baton.stop()
    with pytest.raises(Halted):
        baton.take(baton.line_up(1, 0))
