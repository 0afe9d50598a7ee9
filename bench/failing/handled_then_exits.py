"""Logs a handled exception and later exits with a number."""

import logging
import sys

try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
sys.exit(3)
