"""What jobs say of common mistakes and odd data: one job for each kind, in images side by side.

Usage: python -m bench.mistakes [--only TEXT] [IMAGE …] > bench/results/DATE-mistakes.md

An image is berth-train:cpu if none is named; with two, the first is the one before a change. Ends with exit code 1 if
the last image does not say what `bench.jobs.mistakes` expects.
"""

import re
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from docker import DockerClient

from bench import machine, program
from bench.jobs import one_host
from bench.jobs.mistakes import PROGRAMS, RUN_QA, Files, Mistake
from bench.jobs.one_host import End, HostJob
from berth.common import engine
from berth.local import opt_ml

_RUN_QA = {"do_train": "True", "max_steps": "2", "per_device_train_batch_size": "4", "export_openvino": "False"}
_SHOWN = 600


def run(client: DockerClient, image: str, mistake: Mistake, scratch: Path) -> End:
    """The job, or its second start."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    checkpoints = folder / "checkpoints" if mistake.again else None
    if checkpoints:
        checkpoints.mkdir()
    job = _job(mistake, folder)
    end = one_host.run(client, image, job, folder, checkpoints)
    if not mistake.again:
        return end
    again = HostJob({**job.hyperparameters, **mistake.again}, channels=job.channels)
    return one_host.run(client, image, again, folder, checkpoints)


def _job(mistake: Mistake, folder: Path) -> HostJob:
    if mistake.code:
        code = _write(folder / "code", mistake.code)
        given = {"sagemaker_program": "train.py", **mistake.hyperparameters}
        return HostJob(given, code, environment=mistake.environment, config=mistake.config)
    channels = {"train": _write(folder / "train", mistake.train), "model": mistake.model(folder / "model")}
    given = opt_ml.add_paths({**_RUN_QA, **mistake.hyperparameters}, qa_model=True, has_code=False)
    return HostJob(given, channels=channels, config=mistake.config)


def _write(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def told(mistake: Mistake, end: End) -> str:
    """What the job says: the failure's first line, or the line of the log that matches, or its last one."""
    if end.sentence:
        return end.sentence
    lines = [line for line in end.log.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if re.search(mistake.expected, line)), lines[-1] if lines else "")


def main(words: Sequence[str]) -> int:
    """Print the table; 1 if a row of the last image is not as expected."""
    parser = program.make_parser("mistakes", __doc__)
    parser.add_argument("images", nargs="*", default=["berth-train:cpu"], metavar="IMAGE")
    parser.add_argument("--only", metavar="TEXT", help="the rows whose names hold it")
    options = parser.parse_args(words)
    images: list[str] = options.images
    chosen = [mistake for mistake in (*PROGRAMS, *RUN_QA) if (options.only or "") in mistake.name]
    client = engine.connect()
    print(f"# What jobs say of common mistakes and odd data, {date.today()}\n")
    print(program.setting("mistakes", words, client, machine.cores_of(None)) + ".")
    print(
        "Each cell has the job's exit code and the failure's first line; of a job that ends well, a line of its log.\n"
    )
    print(f"| mistake | {' | '.join(images)} | as expected |\n|---|{'---|' * len(images)}---|")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for mistake in chosen:
            ends = [run(client, image, mistake, Path(scratch)) for image in images]
            right = re.search(mistake.expected, told(mistake, ends[-1])) is not None
            wrong += not right
            cells = [f"{end.code}: {told(mistake, end)[:_SHOWN]}".replace("|", "\\|") for end in ends]
            print(f"| {mistake.name} | {' | '.join(cells)} | {'yes' if right else 'no'} |", flush=True)
    print(f"\n{len(chosen) - wrong} of {len(chosen)} as expected.")
    return 1 if wrong else 0


if __name__ == "__main__":
    program.end_with(main)
