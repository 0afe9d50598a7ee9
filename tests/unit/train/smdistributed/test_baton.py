"""Whose turn it is."""

import threading
import time

import pytest

from berth.train.smdistributed.modelparallel.torch.baton import Baton, Halted


def turns(*, in_turn: bool, slow: float) -> list[int]:
    """Three threads that wait once each, the first for long; who runs when."""
    baton, seen = Baton(in_turn=in_turn), list[int]()
    places = [baton.line_up(1, index) for index in range(3)]

    def body(index: int) -> None:
        baton.take(places[index])
        seen.append(index)
        baton.wait(lambda: time.sleep(0.0 if index else slow), 0, index)
        seen.append(index)
        baton.give_up()

    threads = [threading.Thread(target=body, args=(index,)) for index in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    return seen


def test_in_turn_does_not_depend_on_who_waits_longer() -> None:
    assert turns(in_turn=True, slow=0.2) == turns(in_turn=True, slow=0.0) == [0, 1, 2, 0, 1, 2]


def test_otherwise_who_waits_does_not_keep_others_from_running() -> None:
    assert turns(in_turn=False, slow=0.3)[-1] == 0


def test_nobody_runs_once_it_is_stopped() -> None:
    baton = Baton(in_turn=False)
    baton.stop()
    with pytest.raises(Halted):
        baton.take(baton.line_up(1, 0))
