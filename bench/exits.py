"""Jobs with the open smdistributed that end right after their training, on a busy machine: how many ranks abort.

Usage: python -m bench.exits [--jobs N] [--load N] [--image IMAGE] [> bench/results/….md]

A thread of gloo that outlives the interpreter ends a rank with SIGABRT, although it has trained well. So the library
waits for these threads, with and without the image. Three rows: the library alone, without its wait, and in the image.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from bench import program, report
from berth.images.pins import pins

SCRIPT = pins.ROOT / "bench" / "scripts" / "exits.py"
LIBRARY = pins.ROOT / "smdistributed" / "src"


def run(command: Sequence[str], **variables: str) -> Mapping[str, int]:
    """How the jobs of SCRIPT ended: exit code, or negative signal → number of jobs."""
    environ = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **variables}
    with tempfile.TemporaryFile() as errors:
        result = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True)
        errors.seek(0)
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{errors.read().decode()}")
    endings: Mapping[str, int] = json.loads(result.stdout)
    return endings


def row(where: str, wait: str, endings: Mapping[str, int]) -> str:
    aborted = endings.get(str(-signal.SIGABRT), 0)
    well = endings.get("0", 0)
    total = sum(endings.values())
    return report.row(where, wait, total, well, aborted, total - well - aborted)


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("exits", __doc__)
    parser.add_argument("--jobs", type=program.positive, default=100, metavar="N", help="jobs per row; 100")
    parser.add_argument("--load", type=program.positive, default=6, metavar="N", help="processes that compute; 6")
    parser.add_argument("--image", default="berth-train:cpu", help="the training image; berth-train:cpu")
    options = parser.parse_args(words)
    numbers = [str(options.jobs), str(options.load)]
    alone = [sys.executable, str(SCRIPT), *numbers]
    mount = f"{SCRIPT}:/exits.py:ro"
    in_image = ["docker", "run", "--rm", "--network", "none", "-v", mount, "--entrypoint", "python3", options.image]
    path = {"PYTHONPATH": str(LIBRARY)}
    rows = [
        row("the library alone", "yes", run(alone, **path)),
        row("the library alone", "no", run([*alone, "--without-wait"], **path)),
        row("the image", "yes", run([*in_image, "/exits.py", *numbers])),
    ]
    setting = f"{program.setting('exits', words)}. Each job has four ranks; {options.load} other processes compute."
    columns = ["", "waits for gloo's threads", "jobs", "ended well", "a rank aborted", "failed otherwise"]
    print(report.page("Ranks that abort at their end", [setting], *report.table(columns, rows)))
    return 0


if __name__ == "__main__":
    program.end_with(main)
