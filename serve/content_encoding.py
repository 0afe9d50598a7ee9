"""Compressed bodies: Content-Encoding `gzip` or `deflate` is undone before anybody reads a body.

This is done in steps of about a mebibyte, each in a thread. After each step the bytes are counted, so that a small body
that would become a huge one is refused before it has.
"""

import asyncio
import io
import zlib
from collections.abc import Callable

from berth.serve.body_limits import BodyLimits
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import MEBIBYTE

GZIP, DEFLATE = "gzip", "deflate"
_NAMES = {"": "", "gzip": GZIP, "x-gzip": GZIP, "deflate": DEFLATE}
_SLICE = 16 * 1024
_MEMBERS = 10_000
"""Parts of a gzip body, at most. An empty part has 20 bytes, and each costs 10 µs."""
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15  # see zlib.decompressobj


def encoding_of(header: str | None) -> str:
    """GZIP, DEFLATE, or "" for a body as it is; ServeError (415) for another Content-Encoding, or for several."""
    named = [name.strip().lower() for name in (header or "").split(",")]
    applied = [name for name in named if name not in ("", "identity")]
    encoding = _NAMES.get(applied[0] if applied else "")
    if encoding is None or len(applied) > 1:
        sentence = (
            f"Content-Encoding `{', '.join(applied)[:80]}` can't be read: send gzip, deflate or the body as it is"
        )
        raise ServeError(Kind.UNSUPPORTED_MEDIA_TYPE, sentence)
    return encoding


async def unpack(body: bytes, encoding: str, limits: BodyLimits, take: Callable[[int], None]) -> bytes:
    """The body without its encoding; ServeError if it has more than `limits.most` bytes (413), if `take` refuses the
    size of a part (503), or if it is not what its header says (400). An empty body stays empty.
    """
    if not encoding or not body:
        return body
    unpacking = _Unpacking(body, encoding)
    size = 0
    while not unpacking.ended:
        grown = await asyncio.to_thread(unpacking.step)
        size += grown
        if size > limits.most:
            raise limits.too_large(f"more than {limits.most}", subject=f"the body without {encoding}")
        take(grown)
    return unpacking.unpacked.getvalue()


class _Unpacking:
    """A body on its way."""

    def __init__(self, body: bytes, encoding: str) -> None:
        self.unpacked = io.BytesIO()
        self.ended = False
        self._body = body
        self._encoding = encoding
        self._position = 0
        self._members = 1
        # RFC 9110 means zlib's format by `deflate`, but some clients send the bare data.
        zlib_header = len(body) > 1 and body[0] & 15 == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0
        self._bits = _GZIP_BITS if encoding == GZIP else _ZLIB_BITS if zlib_header else _RAW_BITS
        self._inflate = zlib.decompressobj(self._bits)

    def step(self) -> int:
        """Unpack a mebibyte more, or read one; how many bytes came of it. ServeError (400) if the data is broken."""
        fed = grown = 0
        while not self.ended and fed < MEBIBYTE and grown < MEBIBYTE:
            data = self._inflate.unconsumed_tail or self._next_slice()
            fed += len(data)
            try:
                part = self._inflate.decompress(data, MEBIBYTE)
            except zlib.error as error:
                raise self._broken(str(error).rpartition(": ")[2]) from None
            grown += self.unpacked.write(part)
            if self._inflate.eof:
                self._end_member()
            elif not data and not part:
                raise self._broken("it ends too early")
        return grown

    def _next_slice(self) -> bytes:
        data = self._body[self._position : self._position + _SLICE]
        self._position += len(data)
        return data

    def _end_member(self) -> None:
        """A gzip body may consist of several parts, and be filled up with zeros."""
        self._position -= len(self._inflate.unused_data)
        begin = self._body[self._position : self._position + _SLICE]
        if not begin.strip(b"\0") and not self._body[self._position :].strip(b"\0"):
            self.ended = True
            return
        self._members += 1
        if self._encoding != GZIP or self._members > _MEMBERS:
            raise self._broken("something follows its end" if self._encoding != GZIP else "it has too many parts")
        self._inflate = zlib.decompressobj(self._bits)

    def _broken(self, reason: str) -> ServeError:
        sentence = (
            f"the body is not the {self._encoding} that its Content-Encoding says ({reason}): compress it again, or "
            "send it without that header"
        )
        return ServeError(Kind.BAD_REQUEST, sentence)
