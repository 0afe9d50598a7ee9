"""What the images weigh beside a plain installation of the same packages, and beside the floor: base and torch alone.

Usage: python bench/image_size.py [> bench/results/DATE-image-size.md]    needs the engine and both images built

The plain image has the same base, the same versions of the same packages, from apt and pip as people write it, without
their caches. Sizes are megabytes (10^6 bytes), compressed is the sum of the gzipped layers. Progress goes to stderr.
"""

import os
import platform
import subprocess
import sys
import time

from berth.images import build, engine, network, pins
from berth.images.size import image_size

APT = {
    "train": "python3 python3-pip python3-dev gcc openmpi-bin libopenmpi-dev openssh-server openssh-client",
    "serve": "python3 python3-pip",
}
PIP = {
    "train": ("torch", "transformers", "accelerate", "datasets", "sagemaker-training", "mpi4py"),
    "serve": ("torch", "transformers", "starlette", "uvicorn", "sagemaker-inference"),
    "floor": ("torch",),
}


def plain(name: str, apt: str, packages: tuple[str, ...], base: str) -> str:
    """Builds a plain image and gives its tag."""
    profile = pins.load().profile(pins.DEFAULT_PROFILE)
    tag = f"berth-bench-plain:{name}"
    command = [
        str(engine.find_client()),
        "build",
        "--file",
        str(pins.ROOT / "bench" / "plain.Dockerfile"),
        "--tag",
        tag,
    ]
    arguments = {
        "BASE_IMAGE": base,
        "APT_PACKAGES": apt,
        "PIP_PACKAGES": " ".join(f"{package}=={profile.packages[package]}" for package in packages),
    }
    command += [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    secrets = network.gather(os.environ).write_secrets(pins.CACHE / "secrets")
    command += [word for key, path in secrets.items() for word in ("--secret", f"id={key},src={path}")]
    began = time.monotonic()
    subprocess.run([*command, str(pins.ROOT)], check=True, env=engine.client_environment(os.environ), stdout=sys.stderr)
    print(f"{tag}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return tag


def main() -> None:
    client = engine.connect()
    base = build.base_at_hand(pins.load(), None)
    budget = pins.load().profile(pins.DEFAULT_PROFILE).budget
    rows = []
    try:
        floor = image_size(client, plain("floor", "python3 python3-pip", PIP["floor"], base.reference))
        for image in pins.IMAGES:
            ours = image_size(client, f"berth-{image}:{pins.DEFAULT_PROFILE}")
            peer = image_size(client, plain(image, APT[image], PIP[image], base.reference))
            rows.append((image, ours, peer))
    finally:
        for found in client.images.list("berth-bench-plain"):
            client.images.remove(found.id, force=True)

    print(f"# Image sizes, {time.strftime('%Y-%m-%d')}\n")
    print(
        f"`python bench/image_size.py`, {platform.machine()}, Python {platform.python_version()}, engine "
        f"{client.version()['Version']}, base {base.reference} ({base.digest}), kit {build.revision(pins.ROOT)}\n"
    )
    print("| image | MB compressed | budget | MB on disk | plain install, MB compressed | on disk | ours / plain |")
    print("|---|---|---|---|---|---|---|")
    for image, ours, peer in rows:
        cells = [f"berth-{image}:{pins.DEFAULT_PROFILE}", f"{ours.compressed / 1e6:.0f}", str(budget[image])]
        cells += [f"{size / 1e6:.0f}" for size in (ours.size, peer.compressed, peer.size)]
        print(f"| {' | '.join(cells)} | {ours.compressed / peer.compressed:.2f} |")
    print(
        f"| base, Python, pip and torch alone, plain | {floor.compressed / 1e6:.0f} | | {floor.size / 1e6:.0f} | | | |"
    )
    for image, ours, _ in rows:
        print(f"\n## berth-{image}, where the bytes are\n\n| layer | MB compressed | MB on disk |\n|---|---|---|")
        for layer in ours.layers:
            print(f"| {layer.made_by} | {layer.compressed / 1e6:.1f} | {layer.size / 1e6:.1f} |")
        print("\n| package | version | MB compressed | MB on disk |\n|---|---|---|---|")
        for package in ours.packages[:15]:
            print(f"| {package.name} | {package.version} | {package.compressed / 1e6:.1f} | {package.size / 1e6:.1f} |")


if __name__ == "__main__":
    main()
