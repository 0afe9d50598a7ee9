"""Limits on bodies: our model's follow from its tokens, a handler's from SAGEMAKER_MAX_PAYLOAD_IN_MB."""

import asyncio
import tracemalloc
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from starlette.requests import Request

from berth.serve.admission import Holding, MemoryShare, Share
from berth.serve.configuration.settings import limits_of, read_settings
from berth.serve.errors import ServeError
from berth.serve.http.invocation import read_body
from berth.serve.limits import MEBIBYTE, RequestLimits, for_handler, for_questions


def limits_for(**environ: str) -> RequestLimits:
    return limits_of(read_settings(environ))


@pytest.mark.parametrize(
    ("environ", "questions", "handler"),
    [
        ({}, 2, 25),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "6"}, 2, 6),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "1"}, 1, 1),
        ({"BERTH_MAX_REQUEST_TOKENS": "65536"}, 4, 25),
        ({"SAGEMAKER_BATCH": "true", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "100"}, 100, 100),
        ({"SAGEMAKER_BATCH": "true", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, 128, 1 << 30),
    ],
)
def test_body_limits_of_our_model_and_of_a_handler(environ: dict[str, str], questions: int, handler: int) -> None:
    limits = limits_for(**environ)
    assert for_questions(limits).most == questions * MEBIBYTE
    assert for_handler(limits).most == handler * MEBIBYTE
    assert for_handler(limits).drained > for_handler(limits).most


@pytest.mark.parametrize(
    ("environ", "variable"),
    [({}, "BERTH_MAX_REQUEST_TOKENS"), ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "1"}, "SAGEMAKER_MAX_PAYLOAD_IN_MB")],
)
def test_error_for_a_large_body_names_the_variable_to_raise(environ: dict[str, str], variable: str) -> None:
    limits = for_questions(limits_for(**environ))
    refusal = limits.too_large("30000000")
    assert (refusal.status, refusal.message) == (
        413,
        f"the body has 30000000 bytes, over the limit of {limits.most}: send fewer questions at once, or raise "
        f"{variable}",
    )
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in for_handler(limits_for(**environ)).too_large("30000000").message


def test_handler_bodies_at_once_are_at_least_1_gib_or_two_payloads() -> None:
    assert for_handler(limits_for()).at_once == 1024 * MEBIBYTE
    assert for_handler(limits_for(SAGEMAKER_MAX_PAYLOAD_IN_MB="1000")).at_once == 2000 * MEBIBYTE


def test_memory_share_is_a_quarter_of_the_free_memory() -> None:
    memory = [100 * MEBIBYTE]
    share = MemoryShare(lambda: memory[0], lambda: 0.0)
    for _ in range(20):
        share.take(MEBIBYTE)
        memory[0] -= MEBIBYTE
    with pytest.raises(ServeError) as caught:
        share.take(1)
    assert (caught.value.status, caught.value.retry_after) == (503, 1)
    assert str(20 * MEBIBYTE) in caught.value.message
    assert "an instance with more memory" in caught.value.message
    share.give(10 * MEBIBYTE)
    share.take(MEBIBYTE)
    memory[0] = 40 * MEBIBYTE  # the model has grown
    with pytest.raises(ServeError):
        share.take(MEBIBYTE)


def test_body_larger_than_a_quarter_of_memory_gets_413() -> None:
    share = MemoryShare(lambda: 300 * MEBIBYTE, lambda: 0.0)
    share.take(75 * MEBIBYTE)
    share.give(75 * MEBIBYTE)
    with pytest.raises(ServeError) as caught:
        share.take(100 * MEBIBYTE)
    assert caught.value.status == 413
    assert all(fact in caught.value.message for fact in (str(100 * MEBIBYTE), str(75 * MEBIBYTE), "more memory"))


def test_body_is_not_copied_while_it_is_received() -> None:
    size = 25 * MEBIBYTE
    part = b"x" * 65_536
    parts = iter(range(size // len(part)))

    async def receive() -> Any:
        return {"type": "http.request", "body": part, "more_body": next(parts, None) is not None}

    async def peak_of_receiving() -> int:
        tracemalloc.start()
        try:
            request = Request({"type": "http", "headers": []}, receive)
            body = await read_body(request, for_handler(RequestLimits(payload=2 * size)), Holding())
            assert len(body) == size + len(part)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(peak_of_receiving()) < 1.3 * size


def test_holding_takes_from_all_shares_or_none() -> None:
    first, second = (Share(most, "bytes", lambda: 0.0) for most in (100, 50))
    held = Holding(first, second)
    held.grow_to(40)
    with pytest.raises(ServeError):
        held.grow_to(60)
    assert (first.used, second.used) == (40, 40)
    held.give_all()
    held.give_all()
    assert (first.used, second.used) == (0, 0)


def body_in_parts(parts: Sequence[bytes], length: int, held: Holding) -> Coroutine[Any, Any, bytes]:
    """Receive a body that declares `length` bytes."""
    rest = list(parts)

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": rest.pop(0), "more_body": bool(rest)}

    request = Request({"type": "http", "headers": [(b"content-length", str(length).encode())]}, receive)
    return read_body(request, for_handler(RequestLimits()), held)


def test_some_of_many_large_bodies_are_received_at_once() -> None:
    share = Share(10 * MEBIBYTE, "bytes", lambda: 0.0)
    parts = [b"x" * 65_536] * 32  # 2 MiB

    async def all_at_once() -> list[bytes | BaseException]:
        bodies = [body_in_parts(parts, 2 * MEBIBYTE, Holding(share)) for _ in range(20)]
        return await asyncio.gather(*bodies, return_exceptions=True)

    results = asyncio.run(all_at_once())
    assert sum(isinstance(each, bytes) for each in results) >= 4
    assert all(isinstance(each, bytes) or (isinstance(each, ServeError) and each.status == 503) for each in results)


def test_declared_length_alone_reserves_no_room() -> None:
    share = Share(10 * MEBIBYTE, "bytes", lambda: 0.0)
    held = Holding(share)
    receiving = body_in_parts([b"x", b"y" * (2 * MEBIBYTE - 1)], 2 * MEBIBYTE, held)
    for _ in range(2):
        receiving.send(None)
    assert share.used == 1
    with pytest.raises(StopIteration):
        receiving.send(None)
    assert share.used == 2 * MEBIBYTE
    held.give_all()


def test_refused_body_frees_its_room_before_its_end() -> None:
    share = Share(MEBIBYTE, "bytes", lambda: 0.0)
    receiving = body_in_parts([b"x" * MEBIBYTE, b"x", b"x"], 0, Holding(share))
    for _ in range(3):
        receiving.send(None)
    assert share.used == 0
    with pytest.raises(ServeError):
        receiving.send(None)
