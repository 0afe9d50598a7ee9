"""Builds plain images for comparison: packages from apt and pip as people install them, on berth's base image."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from berth.common import engine
from berth.common.errors import UserError
from berth.images.build import prepare
from berth.images.build.plan import Base
from berth.images.network import build_network
from berth.images.pins import pins
from berth.images.scratch import SECRETS, scratch_folder


def build_plain(tag: str, apt: Sequence[str], pip: Sequence[str], profile: pins.Profile, base: Base) -> None:
    """Build bench/plain.Dockerfile; progress goes to stderr. UserError if the build fails.

    apt: names of Debian packages; pip: requirements and options. torch's own index is used only if no local wheel
    folder has the profile's torch.
    """
    network = build_network.gather(os.environ)
    wheels = prepare.link_wheels(network, profile, pins.ROOT)
    requirements = list(pip)
    if profile.torch_index and not any(wheel.name.startswith("torch-") for wheel in wheels):
        requirements = ["--extra-index-url", profile.torch_index, *requirements]
    arguments = {
        "BASE_IMAGE": base.reference,
        "APT_PACKAGES": " ".join(apt),
        "PIP_PACKAGES": " ".join(requirements),
    }
    command = [str(engine.find_client()), "build", "--file", str(pins.ROOT / "bench" / "plain.Dockerfile")]
    command += ["--tag", tag]
    command += [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    began = time.monotonic()
    with scratch_folder(SECRETS, pins.CACHE) as folder:
        secrets = network.write_secrets(folder)
        command += [word for key, path in secrets.items() for word in ("--secret", f"id={key},src={path}")]
        process = subprocess.run(
            [*command, str(pins.ROOT)], env=engine.client_environment(os.environ), stdout=sys.stderr
        )
    if process.returncode != 0:
        raise UserError(f"{tag} can't be built: see Docker's output above.")
    print(f"{tag}: {time.monotonic() - began:.0f} s", file=sys.stderr)
