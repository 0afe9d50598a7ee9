"""The SDKs of these environments still send what tests/unit/train plans with, and tests/unit/serve serves by."""

from pathlib import Path

import pytest

from tests.local_mode.recorded import PROGRAMS, kept, record


@pytest.mark.parametrize(
    ("file", "version", "program"),
    [(file, version, program) for file, programs in PROGRAMS.items() for version, program in programs.items()],
)
def test_the_sdk_sends_what_is_recorded(file: str, version: int, program: str, tmp_path: Path) -> None:
    now = record(program, version, tmp_path)
    assert now == kept(file)[f"v{version}"], "the SDK sends something else: see what, then `make requests`"
