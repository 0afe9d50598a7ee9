"""Runs one measure of the GPUs in a process of its own: `python -P -m berth.runtime.gpu.bench.child MODULE:FUNCTION
cuda|cpu`.

Prints a line of JSON: the `value` that the function returned, or its `error` as one line.
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from berth.runtime.subprocesses import one_line


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Measure; what libraries print goes to stderr."""
    place, device = arguments
    module, _, function = place.partition(":")
    output = os.dup(1)
    os.dup2(2, 1)
    result: dict[str, Any]
    try:
        result = {"value": getattr(importlib.import_module(module), function)(device)}
    except Exception as error:
        traceback.print_exc()
        result = {"error": one_line(error)}
    with os.fdopen(output, "w") as stream:
        json.dump(result, stream, default=asdict)


if __name__ == "__main__":
    main()
