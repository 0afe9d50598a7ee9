"""The SDKs still send the recorded requests that tests/unit/train and tests/unit/serve use."""

from pathlib import Path

import pytest

from tests.local_mode.recorded import PROGRAMS, read_recorded, record


@pytest.mark.parametrize(
    ("file", "version", "program"),
    [(file, version, program) for file, programs in PROGRAMS.items() for version, program in programs.items()],
)
def test_sdk_still_sends_the_recorded_requests(file: str, version: int, program: str, tmp_path: Path) -> None:
    now = record(program, version, tmp_path)
    assert now == read_recorded(file)[f"v{version}"], (
        "the SDK sends other requests: check the difference, then run `make requests`"
    )
