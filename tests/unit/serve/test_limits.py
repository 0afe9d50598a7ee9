"""Limits on one request, and the errors over them."""

import pytest

from berth.serve.errors import ServeError
from berth.serve.limits import MEBIBYTE, RequestLimits


def test_limits_follow_from_the_tokens_of_a_request() -> None:
    limits = RequestLimits()
    assert (limits.tokens, limits.characters, limits.body) == (32_768, 131_072, 2 * MEBIBYTE)
    larger = RequestLimits(tokens=3_276_800)
    assert (larger.characters, larger.body) == (13_107_200, 25 * MEBIBYTE)
    assert larger.held_bodies == 64 * MEBIBYTE
    assert RequestLimits(tokens=10**8, payload=100 * MEBIBYTE).held_bodies == 200 * MEBIBYTE


def test_body_limit_allows_escaped_texts_within_the_character_limit() -> None:
    limits = RequestLimits()
    assert limits.body > limits.characters * len(r"\ud83d\ude42")


@pytest.mark.parametrize(("files", "connections"), [(1 << 20, 4096), (1024, 768), (256, 16)])
def test_connections_leave_256_descriptors(files: int, connections: int) -> None:
    assert RequestLimits(open_files=files).connections == connections
    assert RequestLimits(open_files=files).requests == connections // 2


def test_texts_over_the_limit_are_refused() -> None:
    RequestLimits().check_texts([("", "x" * 131_072)])
    with pytest.raises(ServeError) as caught:
        RequestLimits().check_texts([("a" * 65_536, "b" * 65_537)])
    assert (caught.value.status, caught.value.message) == (
        413,
        "questions and contexts have 131073 characters in all, over the limit of 131072: send fewer or shorter ones at "
        "once, or raise BERTH_MAX_REQUEST_TOKENS",
    )


def test_error_for_too_many_windows_names_numbers_and_limit() -> None:
    refusal = RequestLimits().too_many_windows(421, 161_664)
    assert (refusal.status, refusal.message) == (
        413,
        "the request makes 421 windows with 161664 tokens in all, over the limit of 32768 tokens: send fewer questions"
        ", a shorter context or a smaller doc_stride, or raise BERTH_MAX_REQUEST_TOKENS",
    )
