"""A thread that reads rows fails; the main thread waits for rows in vain and exits with 1."""

import queue
import sys
import threading

from work import load

rows: queue.Queue[int] = queue.Queue()


def read() -> None:
    for label in (1, 7):
        load(label)
        rows.put(label)


threading.Thread(target=read, daemon=True).start()
try:
    while True:
        rows.get(timeout=1)
except queue.Empty:
    sys.exit(1)
