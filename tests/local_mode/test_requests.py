"""The SDKs of these environments still send for a job what tests/unit/train plans with."""

import json
from pathlib import Path

import pytest

from tests.local_mode import recorded


@pytest.mark.parametrize("version", [2, 3])
def test_the_sdk_sends_what_is_recorded(version: int, tmp_path: Path) -> None:
    kept = json.loads(recorded.FILE.read_text())[f"v{version}"]
    assert recorded.record(version, tmp_path) == kept, "the SDK sends something else: see what, then `make requests`"
