"""The kit's squad, squad_v2, glue and accuracy next to the originals: same keys, same figures.

Usage: python -m bench.metrics --originals FOLDER [> bench/results/DATE-metrics.md]    wants the training image

FOLDER is huggingface/evaluate's metrics/, with squad/squad.py and the like in it; nothing of it is kept. Both sides run
in the training image, in one process, without a network, on the same rows (metrics_in_image.py); figures are the same
where they differ by 1e-9 at most.
"""

import argparse
import json
import time
from pathlib import Path

from docker.types import Mount

from berth.common import engine
from berth.common.containers import Access, run_once
from berth.images import build, pins


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--originals", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--image", default=f"berth-train:{pins.DEFAULT_PROFILE}")
    parser.add_argument("--commit", default="unknown", help="of huggingface/evaluate, for the record")
    options = parser.parse_args()
    mounts = [
        Mount("/originals", str(options.originals.resolve()), type="bind", read_only=True),
        Mount("/bench", str(Path(__file__).parent.resolve()), type="bind", read_only=True),
    ]
    environment = {"HF_HUB_OFFLINE": "1"}
    access = Access(mounts, environment=environment)
    said = run_once(engine.connect(), options.image, ["python", "/bench/metrics_in_image.py"], access).decode()
    print(f"# Metrics next to their originals, {time.strftime('%Y-%m-%d')}\n")
    print(
        f"`python -m bench.metrics --originals metrics`, of huggingface/evaluate at {options.commit}; "
        f"{options.image}, kit {build.revision(pins.ROOT)}\n"
    )
    print("| metric | sets of rows | rows in all | keys | figures | largest difference | same |")
    print("|---|---|---|---|---|---|---|")
    rows = [json.loads(line) for line in said.splitlines()]
    for row in rows:
        print(
            f"| {row['metric']} | {row['sets']} | {row['rows']} | {', '.join(row['keys'])} | {row['figures']} | "
            f"{row['difference']:.1e} | {'yes' if row['same'] else 'no'} |"
        )
    return 0 if rows and all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
