"""A user's program reads a channel in Pipe mode from the pipe that SageMaker made; berth does not touch it."""

import os
import threading
from pathlib import Path

import pytest

from tests.unit.train import test_toolkit
from tests.unit.train.recorded_jobs import Request
from tests.unit.train.test_entry import START

PROGRAM = """
import json, os
from pathlib import Path
channel = Path(os.environ["SM_INPUT_DIR"], "data/train_0")
seen = {"channels": os.environ["SM_CHANNELS"], "pipe": channel.is_fifo(), "read": channel.read_text()}
Path(os.environ["SM_OUTPUT_DATA_DIR"], "seen.json").write_text(json.dumps(seen))
"""


@pytest.mark.slow
def test_program_reads_a_pipe_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = test_toolkit.job(test_toolkit.PYTORCH)
    channels = [{**channel, "InputMode": "Pipe"} for channel in plain.fields["InputDataConfig"]]
    monkeypatch.setattr(test_toolkit, "SEEN", PROGRAM)
    piped = Request("", {**plain.fields, "InputDataConfig": channels})
    pipe = tmp_path / test_toolkit.HOSTS[0] / "input/data/train_0"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_text("a record"), daemon=True).start()
    (seen,) = test_toolkit.seen(START, piped, tmp_path, test_toolkit.HOSTS[:1])
    assert (seen["pipe"], seen["read"]) == (True, "a record")
    assert "train" in seen["channels"]
