"""Leaves by os._exit, without a word."""

import os


def leave() -> None:
    os._exit(7)


leave()
