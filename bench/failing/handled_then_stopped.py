"""Logs an exception that it has handled; when it is told to stop, it saves and ends as such programs do."""

import logging
import signal
import sys
import time


def save(_number: int, _frame: object) -> None:
    print("saved", flush=True)
    sys.exit(143)


signal.signal(signal.SIGTERM, save)
try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
print("trains", flush=True)
time.sleep(600)
