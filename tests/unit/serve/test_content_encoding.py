"""Compressed bodies: undone within the limits, refused with a reason, and never held larger than they may be."""

import asyncio
import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.serve.body_limits import BodyLimits
from berth.serve.content_encoding import encoding_of, unpack
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import MEBIBYTE

LIMITS = BodyLimits(2 * MEBIBYTE, 4 * MEBIBYTE, 8 * MEBIBYTE, 0, "send less")


def unpacked(body: bytes, header: str = "gzip", limits: BodyLimits = LIMITS) -> bytes:
    return asyncio.run(unpack(body, encoding_of(header), limits, lambda size: None))


def refusal_of(body: bytes, header: str = "gzip") -> tuple[int, str]:
    with pytest.raises(ServeError) as caught:
        unpacked(body, header)
    return caught.value.status, caught.value.message


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@given(st.binary(max_size=5000), st.integers(1, 9))
def test_what_was_packed_comes_back(data: bytes, level: int) -> None:
    packed = gzip.compress(data, level)
    assert unpacked(packed, "gzip") == unpacked(packed, " X-GZIP, identity") == data
    assert unpacked(packed + packed + b"\0" * 30_000) == data + data
    assert unpacked(zlib.compress(data, level), "deflate") == data
    assert unpacked(data, "identity") == unpacked(data, "") == data


@given(st.binary(min_size=1, max_size=5000))
def test_bare_deflate_data_as_some_clients_send_it(data: bytes) -> None:
    assert unpacked(raw_deflate(data), "deflate") == data


def test_an_empty_body_is_empty_in_every_encoding() -> None:
    assert unpacked(b"") == unpacked(b"", "deflate") == b""


@pytest.mark.parametrize("header", ["br", "zstd", "compress", "gzip, br", "gzip, gzip", "gzip;q=1"])
def test_an_encoding_that_is_not_read_is_named(header: str) -> None:
    status, sentence = refusal_of(b"x", header)
    assert status == 415
    assert header in sentence
    assert "send gzip, deflate or the body as it is" in sentence


PACKED = gzip.compress(b"question" * 10_000)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"inputs": 1}', "incorrect header check"),
        (PACKED[:5], "it ends too early"),
        (PACKED[:-5], "it ends too early"),
        (PACKED[:40] + b"xxxx" + PACKED[44:], "in"),  # "invalid …" or "incorrect data check", as zlib finds it
        (PACKED[:-8] + b"\1" * 8, "incorrect data check"),
        (PACKED + b"rest", "incorrect header check"),
        (PACKED + gzip.compress(b"more")[:6], "it ends too early"),
        (gzip.compress(b"") * 10_001, "it has too many parts"),
    ],
    ids=["json", "header", "cut", "changed", "checksum", "rest", "second part", "many parts"],
)
def test_a_broken_body_is_refused_with_its_reason(body: bytes, reason: str) -> None:
    status, sentence = refusal_of(body)
    assert status == 400
    assert sentence.startswith(f"the body is not the gzip that its Content-Encoding says ({reason}")


def test_something_behind_deflate_data() -> None:
    assert refusal_of(zlib.compress(b"x") + b"rest", "deflate")[0] == 400


def test_a_body_at_the_limit_and_one_over_it() -> None:
    assert len(unpacked(gzip.compress(b" " * LIMITS.most))) == LIMITS.most
    status, sentence = refusal_of(gzip.compress(b" " * (LIMITS.most + 1)))
    assert status == 413
    assert sentence == (
        f"the body without gzip has more than {LIMITS.most} bytes, over the limit of {LIMITS.most}: send less"
    )


def test_a_bomb_is_never_held() -> None:
    bomb = gzip.compress(b"\0" * (200 * MEBIBYTE), 1)
    tracemalloc.start()
    try:
        assert refusal_of(bomb)[0] == 413
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * LIMITS.most


def test_each_part_is_taken_before_the_next_is_unpacked() -> None:
    taken: list[int] = []

    def take(size: int) -> None:
        if sum(taken) + size > 3 * MEBIBYTE:
            raise ServeError(Kind.OVERLOADED, "too much")
        taken.append(size)

    large = BodyLimits(100 * MEBIBYTE, 0, 0, 0, "")
    with pytest.raises(ServeError):
        asyncio.run(unpack(gzip.compress(b" " * (50 * MEBIBYTE), 1), "gzip", large, take))
    assert 2 * MEBIBYTE <= sum(taken) <= 3 * MEBIBYTE
