"""What a rank concludes from what it heard: pure, and the connections in one process."""

import socket
import time
from typing import Any

import pytest

from berth.smdistributed.modelparallel.torch.peers import STEP, Peers, Waiting
from berth.smdistributed.modelparallel.torch.watch import RankLost, Watch

BARRIER = "smp.barrier(WORLD)"


def heard(*events: dict[str, Any]) -> Peers:
    peers = Peers()
    for event in events:
        peers.hear(event)
    return peers


def test_the_first_rank_that_did_not_end_as_it_should_is_the_cause() -> None:
    assert heard({"rank": 1, "ended": ""}).broken() is None
    peers = heard({"rank": 2, "ended": None}, {"rank": 1, "ended": "ValueError: no"}, {"rank": 2, "ended": ""})
    assert "Rank 2 ended without an error message" in str(peers.broken())
    assert heard({"rank": 1, "ended": "ValueError: no"}).broken() == "Rank 1 ended: ValueError: no"


def test_a_rank_that_has_ended_as_it_should_is_waited_for_in_vain() -> None:
    peers = heard({"rank": 1, "ended": ""})
    assert "Rank 1 has finished its script" in str(peers.cannot_succeed(0, Waiting(STEP, (0, 1))))
    assert peers.cannot_succeed(0, Waiting(STEP, (0, 2))) is None
    assert peers.cannot_succeed(0, None) is None


def test_two_that_wait_for_each_other_in_different_calls() -> None:
    mine, theirs = Waiting(STEP, (0, 1)), {"rank": 1, "what": BARRIER, "ranks": [0, 1]}
    assert "rank 1 for rank 0 in smp.barrier(WORLD)" in str(heard(theirs).cannot_succeed(0, mine))
    assert heard({**theirs, "what": STEP}).cannot_succeed(0, mine) is None
    assert heard({**theirs, "ranks": [1, 2]}).cannot_succeed(0, mine) is None, "it does not wait for this one"
    assert heard(theirs, {"rank": 1, "goes on": True}).cannot_succeed(0, mine) is None


def test_the_first_of_those_that_wait_names_who_does_not_come() -> None:
    mine, there = Waiting("model.state_dict()", (0, 1, 2, 3)), {"what": "model.state_dict()", "ranks": [0, 1, 2, 3]}
    peers = heard({"rank": 2, **there}, {"rank": 3, **there, "what": BARRIER})
    said = "rank 0 waits for rank 1 and 3 in model.state_dict(), which every rank of the group must call."
    assert peers.missing(0, mine) == said
    assert peers.missing(2, mine) is not None, "it does not know of rank 0"
    peers.hear({"rank": 0, **there})
    assert peers.missing(2, mine) is None


def test_a_step_that_failed_elsewhere_and_not_here() -> None:
    peers = heard({"rank": 3, "failed": 1, "text": "Traceback"})
    assert "A step failed on rank 3" in str(peers.failed_more_often(0, (1, 3)))
    assert peers.failed_more_often(1, (1, 3)) is None, "it failed here, too: all replicas are at the same step"
    assert peers.failed_more_often(0, (1, 2)) is None


def test_what_one_rank_tells_all_others_hear() -> None:
    (zero_one, one), (zero_two, two) = socket.socketpair(), socket.socketpair()
    hub, first, second = Watch(0, {1: zero_one, 2: zero_two}), Watch(1, {0: one}), Watch(2, {0: two})
    for each in (hub, second):
        each.start()
    first.step_failed("é" * 100_000)
    until = time.monotonic() + 10
    while not second.peers.failed and time.monotonic() < until:
        time.sleep(0.01)
    assert second.peers.failed == hub.peers.failed == {1: (1, "é" * 100_000)}
    one.close()
    assert "Rank 1 ended without an error message" in str(second.cause([0]))
    with pytest.raises(RankLost, match="Rank 1 ended"), second.named([0]):
        raise RuntimeError
    for each in (hub, second):
        each.end("")
