"""What the kit's own log and its last sentences do not show."""

import pytest

from berth.train.finetune.reporting import report
from berth.train.log import get_logger

PIP = "pip: Looking in indexes: https://me:pw@index.example/simple, HF_TOKEN=abc"
SEEN = "pip: Looking in indexes: https://***@index.example/simple, HF_TOKEN=***"


def test_no_line_of_the_kits_log_shows_a_secret(capfd: pytest.CaptureFixture[str]) -> None:
    get_logger().info("%s", PIP)
    assert capfd.readouterr().out == f"berth: {SEEN}\n"


def test_no_line_of_run_qa_shows_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    report.say(PIP)
    report.error(PIP)
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"{SEEN}\n", f"berth: error: {SEEN}\n")
