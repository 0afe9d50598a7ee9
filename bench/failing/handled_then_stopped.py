"""Logs a handled exception; on SIGTERM it saves and exits, or, with NO_HANDLER, just exits."""

import logging
import os
import signal
import sys
import time


def save(_number: int, _frame: object) -> None:
    print("saved", flush=True)
    sys.exit(143)


if "NO_HANDLER" not in os.environ:
    signal.signal(signal.SIGTERM, save)
try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
print("trains", flush=True)
time.sleep(600)
