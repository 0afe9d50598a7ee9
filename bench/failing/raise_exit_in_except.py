"""Prints an exception and raises SystemExit with a number."""

import traceback

from work import load

try:
    load(7)
except Exception:
    traceback.print_exc()
    raise SystemExit(255)
