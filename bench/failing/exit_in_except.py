"""Prints an exception and exits with a number, as SageMaker's own sample does."""

import sys
import traceback

from work import load

try:
    load(7)
except Exception:
    traceback.print_exc()
    sys.exit(255)
