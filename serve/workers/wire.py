"""One end of the socket between the server and a worker: messages as pickles, large bodies as frames of their own.

A body is not copied into a pickle, nor out of one: it is written from where it is, and read into what the receiver
keeps. So each side holds a request of 100 MB once. (multiprocessing's Connection frames messages in the same way, and
holds them up to three times.)
"""

import pickle
import socket
import struct
from contextlib import suppress
from typing import Any

_APART = 65_536
"""Bytes from which a buffer of a message is a frame of its own; smaller ones are cheaper to copy."""
_SHORT, _LONG = struct.Struct("!i"), struct.Struct("!Q")
"""A frame's size: 4 bytes, or -1 in 4 bytes and 8 bytes."""
_LONGEST_SHORT = 0x7FFFFFFF


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
        self._socket.sendall(_header(len(data)) + data)
        for view in apart:
            self._socket.sendall(_header(view.nbytes))
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
        (size,) = _SHORT.unpack(self._bytes(_SHORT.size))
        if size == -1:
            (size,) = _LONG.unpack(self._bytes(_LONG.size))
        return self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        """So many bytes, read into one buffer of that size."""
        data = self._reader.read(size)
        if len(data) < size:
            raise EOFError
        return data


def _header(size: int) -> bytes:
    return _SHORT.pack(size) if size <= _LONGEST_SHORT else _SHORT.pack(-1) + _LONG.pack(size)
