"""Exits with a file name that is not UTF-8."""

import os
import sys

name = os.fsdecode("caf\xe9.csv".encode("latin-1"))
if not os.path.exists(name):
    sys.exit(f"no rows in {name}")
