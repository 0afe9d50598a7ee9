"""The messages between the server and a worker, pickled, over one socket (MessageWire).

Pickle is safe here: both ends are processes of the same container, version and user.
"""

import pickle
import socket
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from berth.runtime.engines.engine import EngineInfo, WindowTokens
from berth.serve.user_code.context import HandlerInput

JobRow = WindowTokens | HandlerInput
"""One input of a batch: a window, whose result is logits, or a handler's request, whose result is its answer."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: its model has answered the warm-up question."""

    info: EngineInfo
    tokenizer: str
    """The tokenizer as JSON (berth.qa.tokenizer), with which the server makes windows."""
    model: str
    """The model's folder and files, for the log."""
    null_threshold: float
    """See berth.contract.model_files.NULL_THRESHOLD."""
    load_seconds: float
    warm_up_seconds: float
    not_run: str = ""
    """Which file of the model's code is not run, and why, for the log."""
    seconds_per_token: float = 0.0
    """Seconds per token of one slot after the warm-up; 0 if they were not measured."""

    @property
    def slots(self) -> int:
        """Batches at a time."""
        return self.info.slots

    @property
    def rows(self) -> int:
        """The most rows of a batch."""
        return self.info.rows


@dataclass(frozen=True, slots=True)
class HandlerReady:
    """From a worker that runs a user's handler: its model is loaded. It answers one request at a time."""

    file: str
    functions: Collection[str]
    load_seconds: float
    model: str = ""
    """Our model and its engine, for the log, if the handler has no model_fn."""
    engine: str = ""
    slots: int = 1
    rows: int = 1


def is_same_engine(one: Ready | HandlerReady, other: Ready | HandlerReady) -> bool:
    """Whether two workers give the same answers, so that either may answer."""
    match one, other:
        case Ready(), Ready():
            return one.info == other.info
        case HandlerReady(), HandlerReady():
            return one.engine == other.engine
    return False


@dataclass(frozen=True, slots=True)
class Failed:
    """From a worker that can't load its model and exits: the reason in one sentence."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Batch:
    """To a worker: the rows of one batch. `alone`: nothing else waits or runs."""

    number: int
    rows: Sequence[Any]  # of JobRow
    alone: bool


@dataclass(frozen=True, slots=True)
class BatchResults:
    """From a worker: the result of each row of a batch."""

    number: int
    results: Sequence[Any]


@dataclass(frozen=True, slots=True)
class BatchError:
    """From a worker: the engine raised an exception; `trace` is for the log."""

    number: int
    error: str
    trace: str


FromWorker = Ready | HandlerReady | Failed | BatchResults | BatchError


_LARGE_BUFFER = 65_536
"""A buffer of at least this many bytes is sent as a separate frame; smaller ones are cheaper to copy."""
_SIZE = struct.Struct("!Q")
"""A frame's size, which is sent before the frame."""


class MessageWire:
    """One thread at a time may send, and one may receive."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = end.makefile("rb")

    def send(self, message: Any) -> None:
        """Send a message; blocks until the other end has read most of it. OSError if the other end is gone."""
        frames: list[memoryview] = []

        def is_inline(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes < _LARGE_BUFFER:
                return True
            frames.append(view)
            return False

        data = pickle.dumps(message, protocol=5, buffer_callback=is_inline)
        self._socket.sendall(_SIZE.pack(len(data)) + data)
        for view in frames:
            self._socket.sendall(_SIZE.pack(view.nbytes))
            self._socket.sendall(view)

    def receive(self) -> Any:
        """The next message; EOFError or OSError if the other end is gone."""
        # pickle reads its large buffers one by one; each is the next frame.
        return pickle.loads(self._frame(), buffers=iter(self._frame, None))

    def cut(self) -> None:
        """End every send and receive on this socket at once, even if another process still holds the other end."""
        with suppress(OSError):  # it is already closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def _frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._bytes(_SIZE.size))
        return self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        """Exactly `size` bytes; EOFError if the other end is gone."""
        data = self._reader.read(size)
        if len(data) < size:
            raise EOFError
        return data
