"""What an endpoint does with handlers, odd bodies, many models and batch transforms, in images side by side.

Usage: python -m bench.endpoint [--only TEXT] [IMAGE …] > bench/results/DATE-endpoint.md

An image is berth-serve:cpu if none is named; with two, the first is the one before a change. Ends with exit code 1 if
the last image does not answer as `bench.serving.trials` expects.
"""

import re
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from bench import machine, program
from bench.jobs.small import write_model
from bench.serving.sides import require_image
from bench.serving.stage import Stage
from bench.serving.trials import TRIALS
from berth.common import engine
from berth.local.demo import pretrained_model

_SHOWN = 400


def main(words: Sequence[str]) -> int:
    """Print the table; 1 if a row of the last image is not as expected."""
    parser = program.make_parser("endpoint", __doc__)
    parser.add_argument("images", nargs="*", default=["berth-serve:cpu"], metavar="IMAGE")
    parser.add_argument("--only", metavar="TEXT", help="the rows whose names contain this text")
    options = parser.parse_args(words)
    images: list[str] = options.images
    selected = [trial for trial in TRIALS if (options.only or "") in trial.name]
    client = engine.connect()
    for image in images:
        require_image(client, image)
    print(f"# What an endpoint does beside the straight path, {date.today()}\n")
    print(program.setting("endpoint", words, client, machine.cores_of(None)) + "; containers of 2 CPUs and 2 GB.\n")
    print(f"| trial | {' | '.join(images)} | as expected |\n|---|{'---|' * len(images)}---|")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        model = write_model(Path(scratch) / "model", pretrained_model())
        stages = [Stage(client, image, Path(scratch) / str(number), model) for number, image in enumerate(images)]
        for trial in selected:
            seen = [trial.run(stage) for stage in stages]
            right = re.search(trial.expected, seen[-1]) is not None
            wrong += not right
            cells = [text.replace("|", "\\|").replace("\n", " ")[:_SHOWN] for text in seen]
            print(f"| {trial.name} | {' | '.join(cells)} | {'yes' if right else 'no'} |", flush=True)
    print(f"\n{len(selected) - wrong} of {len(selected)} as expected.")
    return 1 if wrong else 0


if __name__ == "__main__":
    program.end_with(main)
