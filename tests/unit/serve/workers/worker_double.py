"""A worker double without a model. It sends a worker's messages; the first token of a row decides what it does.

`python worker_double.py SOCKET MODEL THREADS cpu|cuda`, as the pool starts a worker. The logits of a row are its
tokens. The name of MODEL may be a sentence to fail with, `dies`, or `dies later` (at every start but the first).
"""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from berth.runtime.engines.engine import EngineInfo, RowLogits
from berth.serve.user_code.context import HandlerAnswer, HandlerInput
from berth.serve.workers.messages import Batch, BatchError, BatchResults, Failed, MessageWire, Ready

DIES, RAISES, SLOW, SLEEPS, SENDS_HALF, FORKS, STARTS = 1, 2, 3, 4, 5, 6, 7
TOKENIZER = '{"token_types": false, "library": {}}'


def run(connection: MessageWire, batch: Batch) -> None:
    if isinstance(batch.rows[0], HandlerInput):
        connection.send(BatchResults(batch.number, [HandlerAnswer(200, {}, row.body) for row in batch.rows]))
        return
    first = {int(row.input_ids[0]) for row in batch.rows}
    if DIES in first:
        os._exit(7)
    if RAISES in first:
        connection.send(BatchError(batch.number, "ValueError: no rows", "Traceback: a line"))
        return
    if SENDS_HALF in first:
        os.write(int(sys.argv[1]), b"\0" * 6 + b"\1\0half")
    if FORKS in first and not os.fork():
        os.setsid()
        time.sleep(10)
        os._exit(0)
    if first & {SLEEPS, SENDS_HALF, FORKS}:
        time.sleep(60)
    if STARTS in first:
        child = np.full(1, subprocess.Popen(["sleep", "60"]).pid, np.float32)
        connection.send(BatchResults(batch.number, [RowLogits(child, child)]))
        return
    if SLOW in first:
        time.sleep(0.3)
    logits = [RowLogits(row.input_ids.astype(np.float32), row.input_ids.astype(np.float32)) for row in batch.rows]
    connection.send(BatchResults(batch.number, logits))


def main() -> None:
    descriptor, model, threads, _ = sys.argv[1:]
    connection = MessageWire(socket.socket(fileno=int(descriptor)))
    name = Path(model).name
    marker = os.environ.get("STARTED", "")
    again = bool(marker) and Path(marker).exists()
    if marker:
        Path(marker).touch()
    if name == "dies" or (name == "dies later" and again):
        os._exit(9)
    if " " in name and name != "dies later":
        connection.send(Failed(name))
        return
    connection.send(Ready(EngineInfo("a double", "fp32", 128, int(threads), 4), TOKENIZER, model, 0.0, 0.0, 0.0))
    while True:
        batch = connection.receive()
        assert isinstance(batch, Batch)
        threading.Thread(target=run, args=(connection, batch), daemon=True).start()


if __name__ == "__main__":
    try:
        main()
    except (EOFError, OSError):
        os._exit(0)
