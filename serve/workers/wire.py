"""One end of the socket between the server and a worker: messages as pickles, large bodies as frames of their own.

A body is not copied into a pickle, nor out of one: it is written from where it is, and read into what the receiver
keeps. So each side holds a request of 100 MB once.
"""

import os
import pickle
import socket
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

_APART = 65_536
"""Bytes from which a buffer of a message is a frame of its own; smaller ones are cheaper to copy."""


class MessageWire:
    """One thread at a time may send, and one may receive."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._connection: Connection[Any, Any] = Connection(os.dup(end.fileno()))

    def send(self, message: Any) -> None:
        """Send a message; blocks until the other end has read most of it. OSError if the other end is gone."""
        apart: list[pickle.PickleBuffer] = []

        def stays(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes < _APART:
                return True
            apart.append(buffer)
            return False

        self._connection.send_bytes(pickle.dumps(message, protocol=5, buffer_callback=stays))
        for buffer in apart:
            self._connection.send_bytes(buffer.raw())

    def receive(self) -> Any:
        """The next message; EOFError or OSError if the other end is gone."""
        # The pickle asks for its buffers one by one: each is the next frame.
        frames = iter(self._connection.recv_bytes, None)
        return pickle.loads(next(frames), buffers=frames)

    def cut(self) -> None:
        """Have whoever sends or receives here see the end at once, also if another process still holds the other
        end.
        """
        with suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()
        self._socket.close()
