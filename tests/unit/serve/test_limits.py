"""Limits on one request, and the errors over them."""

import pytest

from berth.serve.limits import MEBIBYTE, RequestLimits


def test_bodies_at_once_have_at_least_64_mib_or_two_payloads() -> None:
    assert RequestLimits(tokens=3_276_800).held_bodies == 64 * MEBIBYTE
    assert RequestLimits(tokens=10**8, payload=100 * MEBIBYTE).held_bodies == 200 * MEBIBYTE


def test_body_limit_allows_escaped_texts_within_the_character_limit() -> None:
    limits = RequestLimits()
    assert limits.body > limits.characters * len(r"\ud83d\ude42")


@pytest.mark.parametrize(("files", "connections"), [(1 << 20, 4096), (1024, 768), (256, 16)])
def test_connections_leave_256_descriptors(files: int, connections: int) -> None:
    assert RequestLimits(open_files=files).connections == connections
    assert RequestLimits(open_files=files).requests == connections // 2
