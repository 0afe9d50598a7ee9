"""Tests the names of TensorBoard's event files; tests/images/train/test_tensorboard.py reads real files."""

from typing import Any

from transformers import PrinterCallback
from transformers.integrations.integration_utils import TensorBoardCallback

from berth.train.run_qa.reporting import event_files


def test_each_tensorboard_writer_gets_its_own_file() -> None:
    writers: list[dict[str, Any]] = []
    callback = TensorBoardCallback.__new__(TensorBoardCallback)  # its __init__ needs a package that is not installed
    callback._SummaryWriter, callback.logging_dir = lambda **options: writers.append(options), "/events"
    event_files.keep_apart([PrinterCallback(), callback])
    for _ in range(2):
        callback._init_summary_writer(args=None)
    assert writers == [{"log_dir": "/events", "filename_suffix": suffix} for suffix in (".0", ".1")]
