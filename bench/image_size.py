"""Sizes of the images, of a plain installation of the same packages, and of torch's wheels alone.

Usage: python -m bench.image_size [PROFILE] [> bench/results/DATE-image-size-PROFILE.md]    needs both images

The plain image has the same base and the same versions of the packages, installed with apt and pip as people write it,
without their caches. Sizes are megabytes (10^6 bytes); "compressed" is the sum of the gzipped layers. No image can be
smaller than torch's wheel and its dependencies (CUDA, cuDNN, NCCL, Triton). Progress goes to stderr.
A CUDA profile takes half an hour and temporarily 30 GB of disk.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import program, report
from bench.plain import build_plain
from berth.common import engine
from berth.common.errors import UserError
from berth.images.build.base import VARIABLE, local_base
from berth.images.build.plan import Base
from berth.images.inspect.size import ImageSize, image_size
from berth.images.locks import lock_text, locks
from berth.images.network import build_network
from berth.images.pins import pins, pins_file
from berth.images.selection import find_built_image

APT = {
    "train": "python3 python3-pip python3-dev gcc openmpi-bin libopenmpi-dev openssh-server openssh-client",
    "serve": "python3 python3-pip",
}
PIP = {
    "train": (
        *("torch", "transformers", "accelerate", "datasets", "sagemaker-training", "mpi4py"),
        *("evaluate", "scikit-learn", "pillow", "tensorboardx"),
    ),
    "serve": ("torch", "transformers", "starlette", "uvicorn", "sagemaker-inference"),
}


COLUMNS = (
    "image",
    " MB compressed",
    " budget",
    " MB on disk",
    " plain install, MB compressed",
    " on disk",
    " ours / plain",
)


def floor(profile: pins.Profile) -> int:
    """Bytes of the wheels in the locks of torch and of NVIDIA's libraries."""
    folders = build_network.gather(os.environ).index.folders
    with tempfile.TemporaryDirectory() as folder:
        for layer in (*lock_text.NVIDIA_LAYERS, "pytorch"):
            lock = locks.LOCKS / profile.name / f"{layer}.txt"
            if lock_text.locked_names(lock.read_text()):
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
                # A closed network may not reach torch's index; it is not needed if a local folder has torch.
                local_wheels = [wheel.name for wheel in build_network.wanted_wheels(folders, [lock.read_text()])]
                if profile.torch_index and not any(name.startswith("torch-") for name in local_wheels):
                    command += ["--extra-index-url", profile.torch_index]
                subprocess.run([*command, "--dest", folder, "--requirement", str(lock)], check=True, stdout=sys.stderr)
        return sum(wheel.stat().st_size for wheel in Path(folder).iterdir())


def plain(name: str, profile: pins.Profile, base: Base) -> ImageSize:
    """Build a plain image, measure it, and remove it."""
    tag = f"berth-bench-plain:{name}"
    names = [*PIP[name], *(["openvino"] if profile.openvino(name) != pins.NONE else [])]
    packages = [f"{package}=={profile.packages[package]}" for package in names]
    build_plain(tag, APT[name].split(), packages, profile, base)
    client = engine.connect()
    try:
        return image_size(client, tag)
    finally:
        client.images.remove(tag, force=True)


def _megabytes(part: Any) -> list[str]:
    """Megabytes of a layer or a package: compressed, on disk."""
    return [f"{size / 1e6:.1f}" for size in (part.compressed, part.size)]


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("image_size", __doc__)
    parser.add_argument("profile", nargs="?", default=pins.DEFAULT_PROFILE, help="default: %(default)s")
    profile = pins_file.load().profile(parser.parse_args(words).profile)
    client = engine.connect()
    for image in profile.images:
        find_built_image(client, f"berth-{image}:{profile.name}")
    base = local_base(client, pins_file.load(), os.environ.get(VARIABLE))
    if base is None:
        raise UserError("the base image is missing: run `python build.py build` first.")
    wheels = floor(profile)
    rows = []
    for image in profile.images:
        ours = image_size(client, f"berth-{image}:{profile.name}")
        rows.append((image, ours, plain(image, profile, base)))

    table = []
    for image, ours, peer in rows:
        sizes = [f"{size / 1e6:.0f}" for size in (ours.size, peer.compressed, peer.size)]
        cells = [f"berth-{image}:{profile.name}", f"{ours.compressed / 1e6:.0f}", profile.budget[image], *sizes]
        table.append(report.row(*cells, f"{ours.compressed / peer.compressed:.2f}"))
    table.append(report.row("only the wheels of torch and its dependencies", f"{wheels / 1e6:.0f}", *[""] * 5))
    setting = f"{program.setting('image_size', words, client)}, base {base.reference} ({base.digest})."
    print(report.page("Image sizes", [setting], *report.table(COLUMNS, table)))
    for image, ours, _ in rows:
        layers = [report.row(layer.made_by, *_megabytes(layer)) for layer in ours.layers]
        packages = [report.row(each.name, each.version, *_megabytes(each)) for each in ours.packages[:15]]
        print(f"\n## berth-{image}: layers and largest packages\n")
        print("\n".join(report.table(["layer", " MB compressed", " MB on disk"], layers)), "\n")
        print("\n".join(report.table(["package", "version", " MB compressed", " MB on disk"], packages)))
    return 0


if __name__ == "__main__":
    program.end_with(main)
