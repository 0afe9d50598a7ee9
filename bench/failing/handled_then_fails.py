"""Logs an exception that it has handled, and later fails of another."""

import logging

from work import load

try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
load(7)
