"""What the server and a worker say to each other, over the one socket between them (`wire`), pickled.

Both are of one container, one version and one user: no message comes from anywhere else.
"""

import pickle
import socket
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from berth.runtime.engines.engine import EngineInfo


class JobRow(Protocol):
    """What a worker makes a result of: a window, of which it gives the logits, or a request to a user's handler."""

    @property
    def length(self) -> int:
        """Tokens, or what stands for them in the queue."""
        ...


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker whose model has answered its warm-up question."""

    info: EngineInfo
    tokenizer: str
    """See berth.qa.tokenizer: the server makes the windows."""
    model: str
    """Where the model is, for the log."""
    null_threshold: float
    """See berth.contract.model_files.NULL_THRESHOLD."""
    load_seconds: float
    warm_up_seconds: float
    not_run: str = ""
    """Which code of the model's is not run and why, for the log."""
    unused: Sequence[str] = ()
    """See berth.serve.user_code.find."""
    seconds_per_token: float = 0.0
    """Of the warm-up question in one slot, once it is warm; 0 if nobody measured it."""

    @property
    def slots(self) -> int:
        """Batches at one time."""
        return self.info.slots

    @property
    def rows(self) -> int:
        """Rows of a batch, at most."""
        return self.info.rows


@dataclass(frozen=True, slots=True)
class HandlerReady:
    """From a worker that runs a user's handler, whose model is loaded: one request at a time."""

    file: str
    functions: Collection[str]
    load_seconds: float
    model: str = ""
    """Our model and its engine, for the log, where the handler has no model_fn."""
    engine: str = ""
    unused: Sequence[str] = ()
    """As in Ready."""
    slots: int = 1
    rows: int = 1
    uses_our_model: bool = False
    """Whether our model has been loaded, by us or by the handler itself (berth.serve.pipeline)."""


def is_same_engine(one: Ready | HandlerReady, other: Ready | HandlerReady) -> bool:
    """Whether two workers compute alike, so that it does not matter which of them answers."""
    match one, other:
        case Ready(), Ready():
            return one.info == other.info
        case HandlerReady(), HandlerReady():
            return one.engine == other.engine
    return False


@dataclass(frozen=True, slots=True)
class Failed:
    """From a worker that can't answer, now or any more, and ends: why, in one sentence."""

    sentence: str
    no_room: bool = False
    """Whether there was not enough disk for what it had to write."""


@dataclass(frozen=True, slots=True)
class Batch:
    """To a worker: the rows of one batch. `alone`: nothing else waits or runs."""

    number: int
    rows: Sequence[Any]  # WindowTokens, or a HandlerInput
    alone: bool


@dataclass(frozen=True, slots=True)
class BatchResults:
    """From a worker: what came of each row of a batch."""

    number: int
    results: Sequence[Any]


@dataclass(frozen=True, slots=True)
class BatchError:
    """From a worker: it raised; `trace` is for the log."""

    number: int
    error: str
    trace: str


FromWorker = Ready | HandlerReady | Failed | BatchResults | BatchError


_APART = 65_536
"""Bytes from which a buffer of a message is a frame of its own; smaller ones are cheaper to copy."""
_SIZE = struct.Struct("!Q")
"""What stands before a frame."""


class MessageWire:
    """One thread at a time may send, and one may receive."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = end.makefile("rb")

    def send(self, message: Any) -> None:
        """Send a message; blocks until the other end has read most of it. OSError if the other end is gone."""
        apart: list[memoryview] = []

        def stays(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes < _APART:
                return True
            apart.append(view)
            return False

        data = pickle.dumps(message, protocol=5, buffer_callback=stays)
        self._socket.sendall(_SIZE.pack(len(data)) + data)
        for view in apart:
            self._socket.sendall(_SIZE.pack(view.nbytes))
            self._socket.sendall(view)

    def receive(self) -> Any:
        """The next message; EOFError or OSError if the other end is gone."""
        # The pickle asks for its buffers one by one: each is the next frame.
        return pickle.loads(self._frame(), buffers=iter(self._frame, None))

    def cut(self) -> None:
        """Have whoever sends or receives here see the end at once, also if another process still holds the other
        end.
        """
        with suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def _frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._bytes(_SIZE.size))
        return self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        """So many bytes, read into one buffer of that size."""
        data = self._reader.read(size)
        if len(data) < size:
            raise EOFError
        return data
