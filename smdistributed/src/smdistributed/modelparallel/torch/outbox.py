"""Sends the coordinator's requests to the owners, each in the order of its visits.

The threads of the microbatches run ahead of the owners: all requests of a backward pass are known at once. An owner
runs its requests one after the other, so one that came too early would let it wait for another owner while it could
compute something else. A request therefore waits here until its owner's turn comes. The turns follow from the visits of
an earlier step; if a microbatch visits other ranks than then, everything is sent at once from there on.

Both ends of a transfer hear of it together, when the sender's turn has come. So all ranks see the transfers in one
order.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from .messages import Expect, Meta, Push, SendGradient
from .visits import Turn, Visit
from .wire import Incoming


@dataclass
class _Item:
    """Messages, with their destinations, that are sent together.

    number: counts the items. gives: a transfer of which both ends hear by this item. needs: transfers of which they
    must have heard before.
    """

    number: int
    messages: Sequence[tuple[int, Any]]
    action: Callable[[], Any]
    gives: int | None
    needs: Sequence[int]
    done: "Future[Any]" = field(default_factory=Future)


class _Owner:
    """The items for one owner. held: by turn, if it has not come yet. open: by microbatch, if only `needs` delay it."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = turns
        self.places = {turn: place for place, turn in enumerate(turns)}
        self.next = 0
        self.held: dict[Turn, list[_Item]] = {}
        self.open: dict[int, deque[_Item]] = {}

    def open_turn(self) -> None:
        """Let the items of the next turn go."""
        if self.next < len(self.turns):
            turn = self.turns[self.next]
            self.open.setdefault(turn[0], deque()).extend(self.held.pop(turn, []))


class Outbox:
    """The requests of the step that runs. order: returns the turns by rank from visits and a number of microbatches."""

    def __init__(
        self,
        send: Callable[[int, Any], None],
        order: Callable[[Sequence[Visit], int], Mapping[int, Sequence[Turn]]],
    ) -> None:
        self._send, self._order = send, order
        self._known: dict[str, list[Visit]] = {}
        """What each microbatch visited in the last step of a function, if all visited the same."""
        self._lock = threading.RLock()
        self.begin("", 0)

    def begin(self, function: str, microbatches: int) -> None:
        """Begin a step."""
        self._function, self._expected = function, self._known.get(function, [])
        turns = self._order(self._expected, microbatches) if self._expected else {}
        self._owners = {rank: _Owner(each) for rank, each in turns.items()}
        self._visits: dict[int, list[Visit]] = {}
        self._over: set[int] = set()
        self._given: set[int] = set()
        self._count = 0

    def finish(self) -> None:
        """All microbatches are over: remember what they visited."""
        first, *others = self._visits.values()
        self._known[self._function] = first if all(each == first for each in others) else []

    def visit(self, microbatch: int, rank: int, *, backward: bool) -> None:
        """The microbatch goes on at a rank, so its previous visit is complete."""
        with self._lock:
            visits = self._visits.setdefault(microbatch, [])
            if visits and visits[-1] == (rank, backward):
                return
            visits.append(Visit(rank, backward))
            if self._owners and visits[-1:] != self._expected[len(visits) - 1 : len(visits)]:
                self.flush()
            self._advance()

    def turn(self, rank: int) -> int | None:
        """The microbatch whose turn it is at a rank; None if there is no order, or not any more."""
        with self._lock:
            owner = self._owners.get(rank)
            return owner.turns[owner.next][0] if owner and owner.next < len(owner.turns) else None

    def post(
        self,
        microbatch: int,
        owner: int,
        *messages: tuple[int, Any],
        action: Callable[[], Any] = lambda: None,
        gives: int | None = None,
        needs: Sequence[int] = (),
    ) -> "Future[Any]":
        """Send messages, with their destinations, when the owner's turn has come, and then call `action`.

        The turn is that of the microbatch's last visit there. Returns the action's result.
        """
        with self._lock:
            self._count += 1
            item = _Item(self._count, messages, action, gives, needs)
            turn = self._last_turn(microbatch, owner) if self._owners else None
            if turn is None:
                self._release(item)
            else:
                own = self._owners[owner]
                if own.places[turn] > own.next:
                    own.held.setdefault(turn, []).append(item)
                else:
                    own.open.setdefault(microbatch, deque()).append(item)
                self._advance()
            return item.done

    def transfer(self, source: int, request: Push | SendGradient) -> None:
        """Let an owner send a tensor to another one."""
        expect = Expect(request.meta, source, request.transfer)
        both = (source, request), (request.destination, expect)
        self.post(request.microbatch, source, *both, gives=request.transfer)

    def fetch(
        self, owner: int, request: Push | SendGradient, expect: Callable[[int, int, Sequence[Meta]], Incoming]
    ) -> "Future[Incoming]":
        """Let an owner send a tensor to this rank. expect: starts to receive it.

        First the request: a first receive over NCCL blocks until the owner sends.
        """
        return self.post(
            request.microbatch,
            owner,
            (owner, request),
            action=lambda: expect(owner, request.transfer, [request.meta]),
        )

    def end(self, microbatch: int) -> None:
        """The microbatch is over."""
        with self._lock:
            self._over.add(microbatch)
            if self._owners and self._visits.get(microbatch) != self._expected:
                self.flush()
            self._advance()

    def flush(self) -> None:
        """Send everything at once, also what comes later."""
        with self._lock:
            waiting = [each for owner in self._owners.values() for each in (*owner.held.values(), *owner.open.values())]
            self._owners = {}
            failure = None
            for item in sorted((item for each in waiting for item in each), key=lambda item: item.number):
                if failure is not None:
                    item.done.set_exception(failure)
                    continue
                try:
                    self._release(item)
                except BaseException as error:
                    failure = error
            if failure is not None:
                raise failure

    def _last_turn(self, microbatch: int, owner: int) -> Turn | None:
        visits = self._visits.get(microbatch, ())
        return next(((microbatch, at) for at in reversed(range(len(visits))) if visits[at].rank == owner), None)

    def _advance(self) -> None:
        """Send what can be sent now."""
        moved = True
        while moved:
            moved = False
            for owner in self._owners.values():
                while self._release_open(owner) or self._end_turn(owner):
                    moved = True

    def _release_open(self, owner: _Owner) -> bool:
        """Send a microbatch's first open item whose transfers are known."""
        for items in owner.open.values():
            if items and all(each in self._given for each in items[0].needs):
                self._release(items.popleft())
                return True
        return False

    def _end_turn(self, owner: _Owner) -> bool:
        """End the owner's turn if its visit is complete and all was sent."""
        if owner.next >= len(owner.turns):
            return False
        microbatch, index = owner.turns[owner.next]
        complete = microbatch in self._over or len(self._visits.get(microbatch, ())) > index + 1
        if not complete or owner.open.get(microbatch):
            return False
        owner.next += 1
        owner.open_turn()
        return True

    def _release(self, item: _Item) -> None:
        try:
            for destination, message in item.messages:
                self._send(destination, message)
            item.done.set_result(item.action())
        except BaseException as error:
            item.done.set_exception(error)  # for the microbatch's thread, which waits
            raise
        if item.gives is not None:
            self._given.add(item.gives)
