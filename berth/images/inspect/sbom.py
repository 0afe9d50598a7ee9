"""Bills of materials of the engine's images: made, kept by image id, and written.

The image itself is asked what it holds (image_listing.py), so that no second copy of it lies on disk and no network is
needed; the same image gives the same bytes.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from docker import DockerClient

from berth.common import engine
from berth.common.files import atomic_write, explain_os_errors
from berth.common.image_names import repository_name
from berth.common.kept import Kept
from berth.images.inspect import cyclonedx
from berth.images.inspect.image_listing import list_image
from berth.images.inspect.packages import BillPackage
from berth.images.pins import pins, pins_file

KEPT = 20
"""How many images' bills the cache holds, less than a megabyte each."""
_USER_CACHE = pins.CACHE / "bills"
_MAKERS = ("sbom", "cyclonedx", "packages", "dpkg", "distributions", "spdx", "image_listing", "list_files")


def image_bill(
    client: DockerClient,
    image: str,
    *,
    cache: Path | None = None,
    step: Callable[[str], None] = lambda done: None,
) -> cyclonedx.Bill:
    """The bill of an image on the engine, or what `cache` (default: the user's own) has of it, for images never change.

    step: called with what is being done, for a progress display. UserError without such an image.
    """
    image_id = str(engine.find_image(client, image).id)
    files = pins_file.load().files
    kept = Kept(cache or _USER_CACHE, KEPT)
    made_by = _made_by(files)
    known = _bill(kept.load(image_id), made_by)
    if known is None:
        found = list_image(client, image_id)
        step(f"{image}: reading the packages")
        known = cyclonedx.bill_of(found, files)
        kept.store(image_id, {"made_by": made_by, **asdict(known)})
    return replace(known, image=image)


def file_name(image: str, exact: str) -> str:
    """Of the bill of a build; exact: the tag that says which build."""
    return f"{repository_name(image)}-{exact}.cdx.json"


def own_file_name(repository: str, tag: str) -> str:
    """Of the bill of an image that somebody built FROM one of the kit's, by what he calls it."""
    return f"{repository.replace('/', '-')}-{tag}.cdx.json"


def named(made: cyclonedx.Bill, repository: str, tag: str) -> cyclonedx.Bill:
    """The bill of an image under its owner's name for it, for by its labels it would be the one that it stands on."""
    metadata = made.document["metadata"]
    component = {**metadata["component"], "name": repository, "version": tag}
    return replace(made, document={**made.document, "metadata": {**metadata, "component": component}})


def write(made: cyclonedx.Bill, path: Path) -> Path:
    """Writes the document as JSON, whole or not at all; its path."""
    text = json.dumps(made.document, indent=1, ensure_ascii=False) + "\n"
    with explain_os_errors(path.parent, path.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as new:
            new.write_text(text, encoding="utf-8")
    return path


def _made_by(files: Mapping[str, pins.PinnedFile]) -> str:
    """What a kept bill was made by and from, next to the image: this code, and the files of docker/pins.toml."""
    digest = hashlib.sha256()
    for module in _MAKERS:
        digest.update(Path(__file__).with_name(f"{module}.py").read_bytes())
    digest.update(json.dumps({key: asdict(file) for key, file in sorted(files.items())}).encode())
    return digest.hexdigest()


def _bill(kept: Any, made_by: str) -> cyclonedx.Bill | None:
    """A kept bill; None if it was made otherwise, or is none."""
    try:
        if kept["made_by"] != made_by:
            return None
        packages = tuple(BillPackage(**each) for each in kept["packages"])
        return cyclonedx.Bill(kept["image"], kept["image_id"], packages, kept["document"])
    except (KeyError, TypeError):
        return None
