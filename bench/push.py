"""The time from a built image to ECR: `build.py push` against the usual build-and-push script.

Usage: python -m bench.push [ROUNDS] [> bench/results/DATE-push.md]

Needs the images of cpu, root, and `aws` (PyPI's awscli) on PATH.

The peer is the script that people write: describe or create the repository, `aws ecr get-login-password | docker
login`, `docker build`, `docker tag`, `docker push`, for each image. Both sides push in turn to the same double of ECR
(moto and the distribution registry on loopback). A "first push" goes into an empty registry; the repositories exist
after the first round. Both sides build first, from the cache. Ours runs in a clone after `make setup`, as a user would
run it. It also checks the repository's settings, reads the manifest back, and attaches a bill of materials. Rows "after
its tests" find the bill in the cache, where the image's tests leave it; rows "making its bill" include creating it.
Python may write bytecode on both sides. Figures are medians of the rounds, in seconds.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import program, report
from berth.common import engine
from berth.common.errors import UserError
from berth.images.pins import pins
from tests.registry.ecr_double import REGIONS, EcrDouble, ecr_double

PEER = """
set -euo pipefail
aws ecr describe-repositories --repository-names "peer-{image}" >/dev/null 2>&1 ||
    aws ecr create-repository --repository-name "peer-{image}" >/dev/null
aws ecr get-login-password | docker login --username AWS --password-stdin "$HOST"
{build} >/dev/null 2>&1
docker tag berth-{image}:cpu "$HOST/peer-{image}:latest"
docker push "$HOST/peer-{image}:latest"
"""


@dataclass(frozen=True)
class Push:
    """One row. first: the registry is empty; bill: the bills of materials are in the cache."""

    title: str
    images: tuple[str, ...] = ("serve",)
    first: bool = True
    bill: bool = True


PUSHES = (
    Push("first push of the inference image, making its bill", bill=False),
    Push("first push of the inference image, after its tests"),
    Push("again, nothing changed", first=False),
    Push("first push of both images, making their bills", pins.IMAGES, bill=False),
    Push("first push of both images, after their tests", pins.IMAGES),
)


def seconds(command: list[str], environment: dict[str, str], folder: Path) -> float:
    began = time.monotonic()
    process = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(process.stderr)
    return time.monotonic() - began


def empty(ecr: EcrDouble) -> None:
    """Delete everything in the registry."""
    registry = ecr.registries[REGIONS[0]]
    registry.stop()
    shutil.rmtree(registry.folder / "storage")
    registry.start()


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("push", __doc__)
    parser.add_argument("rounds", nargs="?", type=program.positive, default=3, help="default: %(default)s")
    rounds = parser.parse_args(words).rounds
    if not shutil.which("aws"):
        raise UserError("`aws` is not on PATH, but the peer's script needs it: install PyPI's awscli.")
    planned = subprocess.run(
        [sys.executable, "build.py", "build", "all", "--dry-run"], cwd=pins.ROOT, capture_output=True, text=True
    )
    if planned.returncode != 0:
        raise UserError(f"the builds can't be planned: {planned.stderr.strip()}")
    lines = planned.stdout.splitlines()
    scripts = {image: PEER.format(image=image, build=line) for image, line in zip(pins.IMAGES, lines, strict=True)}
    with tempfile.TemporaryDirectory() as folder, ecr_double(Path(folder), faults=False) as ecr:
        host = ecr.host()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
        client_folder = str(engine.find_client().parent)
        common = {**kept, **ecr.environment, "PATH": f"{client_folder}:{os.environ['PATH']}"}
        peer_environment = {**common, "HOST": host, "DOCKER_CONFIG": f"{folder}/docker"}
        clone = Path(folder, "berth")
        for command in (["git", "clone", "--quiet", str(pins.ROOT), str(clone)], ["make", "-C", str(clone), "setup"]):
            subprocess.run(command, check=True, stdout=sys.stderr, env=kept)
        cache = Path(folder, "cache")
        our_environment = {**common, "BERTH_DIST": f"{folder}/dist", "XDG_CACHE_HOME": str(cache)}
        ours = ".venv/bin/python build.py build {0} && .venv/bin/python build.py push {0} --no-test"

        def peer_takes(push: Push) -> float:
            script = "\n".join(scripts[image] for image in push.images)
            return seconds(["bash", "-c", script], peer_environment, pins.ROOT)

        def ours_takes(push: Push) -> float:
            which = push.images[0] if len(push.images) == 1 else "all"
            return seconds(["bash", "-c", ours.format(which)], our_environment, clone)

        sides: dict[str, Callable[[Push], float]] = {"peer": peer_takes, "ours": ours_takes}
        times: dict[tuple[Push, str], list[float]] = {}
        for number in range(rounds):
            for side in sorted(sides, reverse=number % 2 == 1):
                for push in PUSHES:
                    if push.first:
                        empty(ecr)
                    if not push.bill:
                        shutil.rmtree(cache / "berth" / "bills", ignore_errors=True)
                    times.setdefault((push, side), []).append(sides[side](push))
                    print(f"round {number + 1}, {side}, {push.title}: {times[push, side][-1]:.1f} s", file=sys.stderr)
        names = [f"{host}/peer-{image}:latest" for image in pins.IMAGES]
        subprocess.run(["docker", "rmi", *names], env=common, capture_output=True)

    rows = []
    for push in PUSHES:
        peer, our = (statistics.median(times[push, side]) for side in ("peer", "ours"))
        rows.append(report.row(push.title, f"{peer:.1f}", f"{our:.1f}", f"{our / peer:.2f}"))
    setting = f"{program.setting('push', words, engine.connect())}; {rounds} rounds in turn, medians."
    lines = report.table(["", " build-and-push script, s", " build.py, s", " ours / peer"], rows)
    print(report.page("Pushing the images", [setting], *lines))
    return 0


if __name__ == "__main__":
    program.end_with(main)
