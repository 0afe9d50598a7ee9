"""syft, which finds the packages in an image's records, and says what it finds as CycloneDX."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from berth.common.errors import UserError
from berth.common.files import explain_os_errors
from berth.images.inventory.image_listing import ImageListing, resolved

CATALOGERS = "dpkg-db-cataloger,python-installed-package-cataloger"
_TIMEOUT_S = 300


def find(beside: Path = Path(sys.executable).parent) -> str:
    """The command `syft` of this environment, else the first on PATH."""
    found = shutil.which("syft", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise UserError("syft, which makes the bill of materials, is not here: run `make setup`, which brings it.")
    return found


def run(listing: ImageListing) -> dict[str, Any]:
    """What syft says of an image's records, as CycloneDX."""
    command = [find(), "scan", "--quiet", "--output", "cyclonedx-json"]
    command += ["--override-default-catalogers", CATALOGERS]
    with tempfile.TemporaryDirectory(prefix="berth-bill-") as name:
        folder = Path(name)
        lay_out(listing, folder / "image")
        # A person's own settings of syft, in a file or in variables, would make another bill.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SYFT_")}
        environment = {**kept, "HOME": name, "XDG_CONFIG_HOME": name, "SYFT_CHECK_FOR_APP_UPDATE": "false"}
        try:
            done = subprocess.run(
                [*command, "--base-path", str(folder / "image"), f"dir:{folder / 'image'}"],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"syft did not end within {_TIMEOUT_S} s: see what keeps this machine busy.") from None
        try:
            document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        except ValueError:
            document = {}
    if document.get("bomFormat") != "CycloneDX":
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(
            f"syft could not read the packages of {listing.image} ({last}): run `make setup`, which brings one "
            "that can."
        )
    return document


def lay_out(listing: ImageListing, folder: Path) -> None:
    """Writes the records into a folder as they lie in the image, each copyright file under its package's name too: some
    packages have another's folder of documentation, by a link that is no record.
    """
    with explain_os_errors(folder, "what the image says of its packages"):
        folder.mkdir()
        for path, record in listing.records.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(record)
        for path in listing.links:
            if path.startswith("usr/share/doc/") and path.count("/") == 3:
                linked = listing.records.get(resolved(listing.links, f"{path}/copyright"))
                if linked is not None:
                    (folder / path).mkdir(parents=True, exist_ok=True)
                    (folder / path / "copyright").write_bytes(linked)
