"""Logs a handled exception and succeeds."""

import logging

try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
print("done")
