"""Runs each image's check of this machine's GPUs (berth/runtime/gpu/bench) in a container: tables to the log, and one
JSON file.

The containers have all GPUs and no network, and are removed afterwards.
"""

import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from docker import DockerClient

from berth.common.engine import connect
from berth.common.errors import UserError
from berth.images.build.revision import read_revision
from berth.images.pins import pins, pins_file
from berth.images.selection import select_image
from berth.local.output_folders import check_writable, make_folder
from berth.local.session import (
    SHM_SIZE,
    ContainerSpec,
    RunSession,
    bind,
    engine_errors,
    require_gpus,
)

_FOLDER = "/check"
_FILE = "report.json"


def measure_gpus(
    profile: str,
    target: Path,
    *,
    log: Callable[[str], None] = print,
    say: Callable[[str], None] = print,
) -> bool:
    """Runs the check in the images of a profile and writes the results to `target`; returns whether no check failed.

    log: prints the containers' lines; say: prints ours. UserError before anything starts if the profile has no CUDA,
    the engine can't pass GPUs on, or an image is missing; also if an image finds no usable GPU.
    """
    kit = pins_file.load()
    if not kit.profile(profile).cuda:
        others = " or ".join(name for name, each in kit.profiles.items() if each.cuda and each.hardware == name)
        raise UserError(f"The images of profile {profile} have no CUDA and use no GPU: choose --profile {others}.")
    with engine_errors():
        client = connect()
        require_gpus(client, instead="run `python bench/gpu.py`, which needs no Docker")
        images = [select_image(client, image, profile).name for image in kit.profile(profile).images]
        make_folder(check_writable(target.parent))
        reports = {image: _check(client, image, log, say) for image in images}
        target.write_text(
            json.dumps(summary(reports, client.version()["Version"]), indent=2, ensure_ascii=False) + "\n"
        )
    say(f"The results are in {target}.")
    return passed(reports)


def summary(reports: Mapping[str, Mapping[str, Any]], engine: str) -> dict[str, Any]:
    """The images' reports, with date, machine, engine and command."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "machine": platform.platform(),
        "engine": engine,
        "kit": str(read_revision(pins.ROOT)),
        "images": dict(reports),
    }


def passed(reports: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether no check of any image failed."""
    return all(check["status"] != "failed" for report in reports.values() for check in report["checks"])


def _check(client: DockerClient, image: str, log: Callable[[str], None], say: Callable[[str], None]) -> dict[str, Any]:
    """The report of one image."""
    say(f"Checking the GPUs in {image}; it takes minutes.")
    with RunSession(client, image, say=say, stop_grace=5.0) as session:
        folder = session.scratch / "check"
        folder.mkdir()
        spec = ContainerSpec(
            "check",
            entrypoint=["python", "-P", "-m", "berth.runtime.gpu.bench.check"],
            command=["--json", f"{_FOLDER}/{_FILE}"],
            mounts=[bind(_FOLDER, folder)],
            gpus=True,
            shm_size=SHM_SIZE,
            offline=True,
        )
        try:
            code, reason = session.run(spec, log)
        except UserError as error:
            raise UserError(
                f"{error}: run this on a machine where `nvidia-smi` lists a GPU whose driver answers."
            ) from None
        try:
            report: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise UserError(
                f"The check in {image} ended with exit code {code} and no result: {reason or 'see its log above.'}"
            ) from None
    return report
