"""The baton decides which microbatch runs."""

import threading
import time
from contextlib import nullcontext

import pytest

from berth.smdistributed.modelparallel.torch.baton import Baton, Halted


def turns(*, in_turn: bool, slow: float, backward: bool) -> list[int]:
    """Run three microbatches that wait once each, the first one longest, and return the order in which they run."""
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
def test_order_in_turn_does_not_depend_on_waiting_times(backward: bool) -> None:
    for slow in (0.2, 0.0):
        assert turns(in_turn=True, slow=slow, backward=backward) == [0, 1, 2, 0, 1, 2]


def test_waiting_backward_pass_does_not_block_others() -> None:
    assert turns(in_turn=False, slow=0.3, backward=True)[-1] == 0


def test_forward_passes_keep_their_order() -> None:
    """A waiting microbatch still lets others begin."""
    assert turns(in_turn=False, slow=0.3, backward=False) == [0, 1, 2, 0, 1, 2]


def opened(count: int) -> Baton:
    """A baton with `count` started microbatches; the last one holds it."""
    baton = Baton(in_turn=False)
    for index, place in enumerate([baton.line_up(1, index) for index in range(count)]):
        baton.take(place)
        if index < count - 1:
            baton.give_up()
    return baton


def test_microbatch_passes_station_unless_an_earlier_one_is_behind() -> None:
    baton = opened(3)
    assert [baton.passes(each) for each in (1, 0, 0, 1, 1, 1, 2)] == [False, True, True, True, True, False, True]


def test_backward_or_finished_microbatch_does_not_block_others() -> None:
    baton = opened(2)
    assert not baton.passes(1)
    with baton.backward(0):
        assert baton.passes(1)
    assert not baton.passes(1)
    baton.close(0)
    assert baton.passes(1)


def test_backward_pass_does_not_count_as_station() -> None:
    """Two forward and backward passes in a microbatch: the second forward pass begins where the first ended."""
    baton = opened(2)
    with baton.backward(0):
        baton.give_up()
        baton.wait(lambda: None, 0, 0)
        assert baton.passes(0)
    assert not baton.passes(1)


def test_planned_turns_decide_if_there_are_any() -> None:
    """Also between microbatches that do not wait, and however long the one waits whose turn it is."""
    plan = [0, 1, 1, 0]
    baton = Baton(in_turn=True, turn=lambda: plan[0] if plan else None)
    keys = {index: baton.line_up(1, index) for index in (1, 0)}
    baton.take(keys[0])
    del plan[0]
    for _ in range(2):
        baton.give_up()
        baton.take(keys[1])
        del plan[0]
        keys[1] = baton.line_up(0, 1)
    assert baton.passes(1)  # an earlier microbatch is behind, but the plan allows it
    keys[0] = baton.line_up(0, 0)
    baton.give_up()
    baton.take(keys[0])
    plan.clear()
    baton.give_up()
    baton.take(keys[1])  # without a plan the first in the queue is the next


def test_stopped_baton_raises_halted() -> None:
    baton = Baton(in_turn=False)
    baton.stop()
    with pytest.raises(Halted):
        baton.take(baton.line_up(1, 0))
