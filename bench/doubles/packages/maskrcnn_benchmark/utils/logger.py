"""The log."""

import logging


def setup_logger(name: str, *_: object) -> logging.Logger:
    return logging.getLogger(name)
