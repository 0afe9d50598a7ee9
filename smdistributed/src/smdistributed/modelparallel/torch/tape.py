"""What a microbatch did across ranks, in order: its tape, which the backward pass reads from its end."""

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from .remote import GradientHolder, Handle


@dataclass
class Put:
    """A local tensor went to another rank. `departure` is None if it takes no gradient."""

    handle: Handle
    departure: torch.Tensor | None = None
    holder: GradientHolder = field(default_factory=GradientHolder)


@dataclass
class Moved:
    """A tensor went from one owner to another."""

    source: Handle
    target: Handle


@dataclass
class Fetched:
    """A tensor came here."""

    handle: Handle
    holder: GradientHolder


@dataclass
class Called:
    """A module was called. `spent`: its graph is used up."""

    name: str
    owner: int
    number: int
    inputs: list[Handle]
    results: list[Handle]
    spent: bool = False


Record = Put | Moved | Fetched | Called


@dataclass
class Microbatch:
    """What a thread runs. `copies`: what is where already; `passes`: how many backward passes began."""

    index: int
    seed: int
    tape: list[Record] = field(default_factory=list)
    puts: dict[tuple[int, int, int, bool], tuple["weakref.ref[torch.Tensor]", Handle]] = field(default_factory=dict)
    copies: dict[tuple[int, int], Handle] = field(default_factory=dict)
    calls: int = 0
    backward: bool = False
    passes: int = 0
    over: bool = False
    random: Any = None


@dataclass
class Sending:
    """What a call takes with it."""

    inputs: list[Handle] = field(default_factory=list)
    puts: list[tuple[Handle, torch.Tensor]] = field(default_factory=list)
    moves: list[tuple[Handle, Handle, int]] = field(default_factory=list)
