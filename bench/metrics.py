"""The kit's squad, squad_v2, glue and accuracy next to the originals: same keys, same figures.

Usage: python -m bench.metrics --originals FOLDER [--commit ID] [> bench/results/DATE-metrics.md]

Wants the training image.

FOLDER is huggingface/evaluate's metrics/, with squad/squad.py and the like in it; nothing of it is kept. Both sides run
in the training image, in one process, without a network, on the same rows (metrics_in_image.py); figures are the same
where they differ by 1e-9 at most.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from docker.types import Mount

from bench import program
from berth.common import engine, labels
from berth.common.containers import Access, run_once
from berth.common.errors import UserError
from berth.images import pins
from berth.images.selection import find_built_image

METRICS = ("squad", "squad_v2", "glue", "accuracy")


def check_originals(folder: Path) -> None:
    """UserError where one of the metrics is not in the folder."""
    missing = [name for name in METRICS if not (folder / name / f"{name}.py").is_file()]
    if missing:
        raise UserError(f"{folder} lacks {', '.join(missing)}: give --originals the metrics/ of huggingface/evaluate.")


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("metrics", __doc__)
    parser.add_argument("--originals", type=Path, required=True, metavar="FOLDER", help="metrics/ of evaluate's")
    parser.add_argument("--image", default=f"berth-train:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    parser.add_argument("--commit", metavar="ID", default="unknown", help="of huggingface/evaluate, for the record")
    options = parser.parse_args(words)
    check_originals(options.originals)
    client = engine.connect()
    image = find_built_image(client, options.image)
    mounts = [
        Mount("/originals", str(options.originals.resolve()), type="bind", read_only=True),
        Mount("/bench", str(Path(__file__).parent.resolve()), type="bind", read_only=True),
    ]
    environment = {"HF_HUB_OFFLINE": "1"}
    access = Access(mounts, environment=environment)
    said = run_once(client, options.image, ["python", "/bench/metrics_in_image.py"], access).decode()
    print(f"# Metrics next to their originals, {time.strftime('%Y-%m-%d')}\n")
    print(
        f"`python -m bench.metrics --originals metrics`, of huggingface/evaluate at {options.commit}; "
        f"{options.image}, kit {labels.revision(image.labels)}\n"
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
    program.end_with(main)
