"""What the kit's own log and its last sentences do not show."""

import os
import threading

import pytest

from berth.train.hosts.log import get_logger, write_all
from berth.train.run_qa.reporting import report

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


def test_lines_of_two_threads_stay_whole_where_the_reader_is_slow() -> None:
    source, sink = os.pipe()
    received: list[bytes] = []

    def read() -> None:
        while data := os.read(source, 1000):  # less than a line at a time, of a pipe that is always full
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
