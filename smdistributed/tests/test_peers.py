"""What a rank concludes from messages of other ranks, and the connections, in one process."""

import socket
import time
from typing import Any

import pytest

from berth.smdistributed.modelparallel.torch.peers import STEP, Peers, Waiting
from berth.smdistributed.modelparallel.torch.watch import RankLost, Watch

BARRIER = "smp.barrier(WORLD)"


def peers_after(*events: dict[str, Any]) -> Peers:
    peers = Peers()
    for event in events:
        peers.hear(event)
    return peers


def test_first_failed_rank_is_the_cause() -> None:
    assert peers_after({"rank": 1, "ended": ""}).broken() is None
    peers = peers_after({"rank": 2, "ended": None}, {"rank": 1, "ended": "ValueError: no"}, {"rank": 2, "ended": ""})
    assert "Rank 2 ended without an error message" in str(peers.broken())
    assert peers_after({"rank": 1, "ended": "ValueError: no"}).broken() == "Rank 1 ended: ValueError: no"


def test_lost_rank_ends_only_those_who_wait_for_it() -> None:
    peers = peers_after({"rank": 2, "ended": None})
    assert peers.failed_rank() is None
    assert peers.cannot_succeed(0, Waiting(STEP, (0, 1))) is None
    assert "Rank 2 ended without an error message" in str(peers.cannot_succeed(0, Waiting(STEP, (0, 2))))
    peers.hear({"rank": 1, "ended": "ValueError: no"})
    assert peers.failed_rank() == "Rank 1 ended: ValueError: no"


def test_waiting_for_a_finished_rank_cannot_succeed() -> None:
    peers = peers_after({"rank": 1, "ended": ""})
    assert "Rank 1 has finished its script" in str(peers.cannot_succeed(0, Waiting(STEP, (0, 1))))
    assert peers.cannot_succeed(0, Waiting(STEP, (0, 2))) is None
    assert peers.cannot_succeed(0, None) is None


def test_waiting_in_different_calls_cannot_succeed() -> None:
    mine, theirs = Waiting(STEP, (0, 1)), {"rank": 1, "what": BARRIER, "ranks": [0, 1]}
    assert "rank 1 for rank 0 in smp.barrier(WORLD)" in str(peers_after(theirs).cannot_succeed(0, mine))
    assert peers_after({**theirs, "what": STEP}).cannot_succeed(0, mine) is None
    assert peers_after({**theirs, "ranks": [1, 2]}).cannot_succeed(0, mine) is None, "rank 1 does not wait for rank 0"
    assert peers_after(theirs, {"rank": 1, "goes on": True}).cannot_succeed(0, mine) is None


def test_busy_rank_is_not_waited_for_in_vain() -> None:
    """Others may be ahead of a step with sharded parameters, but must not end."""
    busy, theirs = Waiting(STEP, (0, 1), busy=True), {"rank": 1, "what": BARRIER, "ranks": [0, 1]}
    assert peers_after(theirs).cannot_succeed(0, busy) is None
    assert "Rank 1 ended without" in str(peers_after({"rank": 1, "ended": None}).cannot_succeed(0, busy))


def test_first_waiting_rank_names_the_missing_ones() -> None:
    mine, theirs = Waiting("model.state_dict()", (0, 1, 2, 3)), {"what": "model.state_dict()", "ranks": [0, 1, 2, 3]}
    peers = peers_after({"rank": 2, **theirs}, {"rank": 3, **theirs, "what": BARRIER})
    message = "rank 0 waits for rank 1 and 3 in model.state_dict(), which every rank of the group must call."
    assert peers.missing(0, mine) == message
    assert peers.missing(2, mine) is not None, "rank 0 has not reported that it waits"
    peers.hear({"rank": 0, **theirs})
    assert peers.missing(2, mine) is None


def test_step_that_failed_only_on_another_replica() -> None:
    peers = peers_after({"rank": 3, "failed": 1, "text": "Traceback"})
    assert "A step failed on rank 3" in str(peers.failed_more_often(0, (1, 3)))
    assert peers.failed_more_often(1, (1, 3)) is None, "this rank failed as often, so all replicas are at the same step"
    assert peers.failed_more_often(0, (1, 2)) is None


def test_message_of_one_rank_reaches_all_others() -> None:
    (zero_one, one), (zero_two, two) = socket.socketpair(), socket.socketpair()
    hub, first, second = Watch(0, {1: zero_one, 2: zero_two}), Watch(1, {0: one}), Watch(2, {0: two})
    for each in (hub, second):
        each.start()
    first.step_failed("é" * 100_000, 1)
    first.step_failed("again", 1)
    until = time.monotonic() + 10
    while not second.peers.failed and time.monotonic() < until:
        time.sleep(0.01)
    assert second.peers.failed == hub.peers.failed == {1: (1, "é" * 100_000)}, "a step fails once"
    one.close()
    assert "Rank 1 ended without an error message" in str(second.cause([0]))
    with pytest.raises(RankLost, match="Rank 1 ended"), second.explain_errors([0]):
        raise RuntimeError
    for each in (hub, second):
        each.end("")
