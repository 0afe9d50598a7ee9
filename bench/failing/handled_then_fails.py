"""Logs a handled exception and later fails with another one."""

import logging

from work import load

try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
load(7)
