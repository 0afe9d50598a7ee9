"""Requests wait for their owner's turn."""

import pytest

from berth.smdistributed.modelparallel.torch.outbox import Outbox
from berth.smdistributed.modelparallel.torch.visits import Visit

VISITS = [Visit(rank, backward) for rank, backward in ((0, False), (1, False), (2, False), (2, True), (1, True))]
BACKWARD_BETWEEN = {
    1: [(0, 1), (1, 1), (0, 4), (1, 4)],
    2: [(0, 2), (0, 3), (1, 2), (1, 3)],
}
"""Rank 2 runs the backward visit of a microbatch before the forward visit of the next one."""


class Step:
    """Microbatches that post one request per visit, named by the microbatch and the visit."""

    def __init__(self, outbox: Outbox, sent: list[str]) -> None:
        self.outbox, self.sent = outbox, sent

    def go(self, microbatch: int, index: int, visits: list[Visit] = VISITS) -> None:
        """Make a visit. It needs a transfer from the previous one, which the previous one's rank hears of first."""
        rank, backward = visits[index]
        transfer = 10 * microbatch + index
        if index > 1:
            self.outbox.post(microbatch, visits[index - 1].rank, (0, f"send {microbatch}.{index}"), gives=transfer)
        self.outbox.visit(microbatch, rank, backward=backward)
        if rank:
            needs = [transfer] if index > 1 else []
            self.outbox.post(microbatch, rank, (rank, f"{microbatch}.{index}"), needs=needs)

    def run(self, microbatches: int, visits: list[Visit] = VISITS) -> None:
        """One microbatch after the other."""
        for microbatch in range(microbatches):
            for index in range(len(visits)):
                self.go(microbatch, index, visits)
            self.outbox.end(microbatch)


@pytest.fixture
def step() -> Step:
    """The second step of a function: the first one recorded the visits."""
    sent: list[str] = []
    outbox = Outbox(lambda _, message: sent.append(message), lambda visits, count: BACKWARD_BETWEEN)
    made = Step(outbox, sent)
    outbox.begin("train", 2)
    made.run(2)
    outbox.finish()
    outbox.begin("train", 2)
    sent.clear()
    return made


def test_first_step_sends_everything_at_once() -> None:
    sent: list[str] = []
    step = Step(Outbox(lambda _, message: sent.append(message), lambda visits, count: BACKWARD_BETWEEN), sent)
    step.outbox.begin("train", 2)
    for index in range(4):
        for microbatch in range(2):
            step.go(microbatch, index)
    assert [each for each in sent if "send" not in each] == ["0.1", "1.1", "0.2", "1.2", "0.3", "1.3"]


def test_request_waits_for_its_owners_turn(step: Step) -> None:
    for index in range(3):
        for microbatch in range(2):
            step.go(microbatch, index)
    assert step.sent == ["0.1", "send 0.2", "1.1", "0.2", "send 1.2"]  # both ends of 1.2 hear of the transfer
    step.go(0, 3)
    assert step.sent[5:] == ["send 0.3", "0.3"]
    step.go(0, 4)
    assert step.sent[7:] == ["send 0.4", "1.2", "0.4"]


def test_all_is_sent_if_every_microbatch_makes_the_expected_visits(step: Step) -> None:
    step.run(2)
    assert sorted(each for each in step.sent if "send" not in each) == [
        f"{m}.{at}" for m in (0, 1) for at in range(1, 5)
    ]


def test_the_microbatch_whose_turn_it_is(step: Step) -> None:
    assert step.outbox.turn(1) == 0
    step.go(0, 0)
    step.go(0, 1)
    assert step.outbox.turn(1) == 0
    step.go(0, 2)
    assert step.outbox.turn(1) == 1
    step.outbox.flush()
    assert step.outbox.turn(1) is None


def test_nothing_is_held_after_an_unexpected_visit(step: Step) -> None:
    for index in range(3):
        for microbatch in range(2):
            step.go(microbatch, index)
    assert "1.2" not in step.sent
    step.outbox.visit(0, 1, backward=False)
    assert step.sent[-1] == "1.2"
    step.outbox.post(1, 2, (2, "later"))
    assert step.sent[-1] == "later"


def test_nothing_is_held_after_a_microbatch_that_ends_early(step: Step) -> None:
    for index in range(3):
        for microbatch in range(2):
            step.go(microbatch, index)
    step.outbox.end(0)
    assert step.sent[-1] == "1.2"


def test_a_later_step_follows_the_new_visits(step: Step) -> None:
    """Also if the microbatches of a step visited different ranks: then nothing is held in the next one."""
    step.outbox.visit(0, 1, backward=False)
    step.outbox.visit(1, 2, backward=False)
    step.outbox.finish()
    step.outbox.begin("train", 2)
    step.outbox.visit(1, 2, backward=False)
    step.outbox.post(1, 2, (2, "at once"))
    assert step.sent == ["at once"]


def test_an_error_in_sending_reaches_all_threads_that_wait(step: Step) -> None:
    def fail() -> None:
        raise OSError("Connection closed")

    for index in range(3):
        step.go(0, index)
    step.outbox.visit(1, 0, backward=False)
    step.outbox.visit(1, 1, backward=False)
    step.outbox.visit(1, 2, backward=False)
    held = step.outbox.post(1, 2, (2, "held"), action=fail)
    later = step.outbox.post(1, 2, (2, "later"))
    assert not held.done()
    with pytest.raises(OSError, match="Connection closed"):
        step.outbox.flush()
    for each in (held, later):
        with pytest.raises(OSError, match="Connection closed"):
            each.result(timeout=1)
