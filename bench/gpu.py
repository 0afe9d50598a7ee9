"""What this machine's GPUs do, without Docker and without an installation: the checks of the images (gpu/check.py).

Usage: python bench/gpu.py [--json FILE] [--device cpu] [--only CHECK …]    needs torch; transformers for two checks

Prints a table and, with --json, writes it with date, versions and command. What a missing package forbids is skipped.
"""

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """The checks, with this checkout as the package `berth`, in this process and in those that it starts.

    The checkout's folders are the packages' (pyproject.toml's package-dir): under the name `berth`, the root of the
    checkout is the package. A link of that name, on PYTHONPATH, makes it so.
    """
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
        (Path(folder) / "berth").symlink_to(ROOT, target_is_directory=True)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        from berth.gpu import check

        return check.main()


if __name__ == "__main__":
    sys.exit(main())
