"""Output to a pipe."""

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from berth.common import console
from berth.images.pins import pins

PRINT = """
from rich.table import Table
from berth.common.console import result
table = Table("path", "what")
table.add_row("/opt/berth/lib/" + "x" * 200, "docker/pins.toml")
result.print(table)
"""


def test_table_rows_are_not_wrapped_in_a_pipe() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-c", PRINT], cwd=pins.ROOT, env=environment, capture_output=True, text=True, check=True
    )
    (row,) = [line for line in done.stdout.splitlines() if "/opt/berth/lib" in line]
    assert "x" * 200 in row
    assert "docker/pins.toml" in row


def test_progress_is_lines_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with console.doing("reading [the] images") as step:
        step("3 layers of [serve]")
    assert capsys.readouterr() == ("", "reading [the] images\n3 layers of [serve]\n")


def test_heading_is_a_short_line_in_a_log() -> None:
    for is_terminal, expected in ((False, "--- the [second] host\n"), (True, "─── the [second] host ────\n")):
        written = io.StringIO()
        shown = Console(file=written, force_terminal=is_terminal, width=26, color_system=None)
        console.heading(shown, "the [second] host")
        assert written.getvalue() == expected
