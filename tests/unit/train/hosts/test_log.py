"""The logs of the entry and of run_qa mask secrets, and lines of several threads stay whole."""

import os
import threading

import pytest

from berth.train.hosts.log import get_logger, write_all
from berth.train.run_qa.reporting import report

LINE = "pip: Looking in indexes: https://me:pw@index.example/simple, HF_TOKEN=abc"
MASKED = "pip: Looking in indexes: https://***@index.example/simple, HF_TOKEN=***"


def test_logs_mask_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    get_logger().info("%s", LINE)
    report.say(LINE)
    report.failure(LINE)
    output = capfd.readouterr()
    assert (output.out, output.err) == (f"berth: {MASKED}\n{MASKED}\n", f"berth: error: {MASKED}\n")


def test_lines_of_two_threads_stay_whole_with_a_slow_reader() -> None:
    source, sink = os.pipe()
    received: list[bytes] = []

    def read() -> None:
        while data := os.read(source, 1000):  # less than a line, so the pipe is always full
            received.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    lines = [bytes([letter]) * 70_000 + b"\n" for letter in b"ab"]
    writers = [threading.Thread(target=lambda line=line: [write_all(sink, line) for _ in range(20)]) for line in lines]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    os.close(sink)
    reader.join()
    os.close(source)
    assert sorted(b"".join(received).splitlines(keepends=True)) == sorted(lines * 20)
