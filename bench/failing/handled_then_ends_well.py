"""Logs an exception that it has handled, and ends well."""

import logging

try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
print("done")
