"""The tape of a microbatch: its calls and transfers between ranks in order; the backward pass replays it in reverse."""

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from .remote import GradientHolder, Handle


@dataclass
class Put:
    """A local tensor was sent to another rank. departure: None if it needs no gradient."""

    handle: Handle
    departure: torch.Tensor | None = None
    holder: GradientHolder = field(default_factory=GradientHolder)


@dataclass
class Moved:
    """A tensor was sent from one owner to another."""

    source: Handle
    target: Handle


@dataclass
class Fetched:
    """A tensor was fetched to this rank."""

    handle: Handle
    holder: GradientHolder


@dataclass
class Called:
    """Remote modules were called. spent: a backward pass has used up the graph."""

    name: str
    owner: int
    number: int
    inputs: list[Handle]
    results: list[Handle]
    spent: bool = False


Record = Put | Moved | Fetched | Called


@dataclass
class Microbatch:
    """The state of a microbatch.

    puts, copies: tensors that other ranks have. unneeded: numbers of tensors that are not used here any more, by owner;
    the next call tells the owner. passes: backward passes so far.
    """

    index: int
    seed: int
    tape: list[Record] = field(default_factory=list)
    puts: dict[tuple[int, int, int, bool], tuple["weakref.ref[torch.Tensor]", Handle]] = field(default_factory=dict)
    copies: dict[tuple[int, int], Handle] = field(default_factory=dict)
    unneeded: dict[int, list[int]] = field(default_factory=dict)
    calls: int = 0
    backward: bool = False
    passes: int = 0
    over: bool = False
    random: Any = None

    def release(self, owner: int, number: int) -> None:
        """A tensor is not used here any more."""
        self.unneeded.setdefault(owner, []).append(number)


@dataclass
class Sending:
    """The tensors of a call: all inputs, those sent with it, and those that come from other owners."""

    inputs: list[Handle] = field(default_factory=list)
    puts: list[tuple[Handle, torch.Tensor]] = field(default_factory=list)
    moves: list[tuple[Handle, Handle, int]] = field(default_factory=list)
