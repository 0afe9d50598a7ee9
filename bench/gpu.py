"""Run the images' GPU checks on this machine, without Docker and without an installation.

Usage: python bench/gpu.py [--json FILE] [--device cpu] [--only CHECK …]    needs torch; two checks need transformers

Prints a table; --json also writes it with date, versions and command. A check is skipped if a package is missing.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the checks from this checkout; child processes import from it, too."""
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    from berth.runtime.gpu.bench import check

    return check.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
