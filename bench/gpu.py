"""What this machine's GPUs do, without Docker and without an installation: the checks of the images.

Usage: python bench/gpu.py [--json FILE] [--device cpu] [--only CHECK …]    needs torch; transformers for two checks

Prints a table and, with --json, writes it with date, versions and command. What a missing package forbids is skipped.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """The checks, out of this checkout, in this process and in those that it starts."""
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    from berth.runtime.gpu.bench import check

    return check.main(["--row", "inference=berth.serve.gpu_check:INFERENCE", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
