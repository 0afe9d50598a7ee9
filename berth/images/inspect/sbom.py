"""Makes bills of materials of the engine's images, caches them by image id, and writes them.

A container of the image lists its contents (image_listing.py), so no copy of the image and no network is needed. The
same image gives the same bytes.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from docker import DockerClient

from berth.common import engine
from berth.common.files import atomic_write, explain_os_errors
from berth.common.kept import Kept, answer_key
from berth.images.inspect import cyclonedx
from berth.images.inspect.image_listing import list_image
from berth.images.inspect.packages import BillPackage
from berth.images.pins import pins, pins_file

KEPT = 20
"""The number of bills in the cache, less than a megabyte each."""
_USER_CACHE = pins.CACHE / "bills"


def image_bill(
    client: DockerClient,
    image: str,
    *,
    cache: Path | None = None,
    step: Callable[[str], None] = lambda done: None,
) -> cyclonedx.Bill:
    """The bill of an image on the engine, from `cache` (default: the user's) if possible.

    step: called with a description of each step. UserError if there is no such image.
    """
    image_id = str(engine.find_image(client, image).id)
    files = pins_file.load().files
    kept = Kept(cache or _USER_CACHE, KEPT)
    # A bill that other code made is outdated.
    code = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    key = answer_key(image_id, files, code)
    known = kept.load(key)
    if known is None:
        found = list_image(client, image_id)
        step(f"{image}: reading the packages")
        known = asdict(cyclonedx.bill_of(found, files))
        kept.store(key, known)
    packages = tuple(BillPackage(**each) for each in known["packages"])
    return cyclonedx.Bill(image, image_id, packages, known["document"])


def write(bill: cyclonedx.Bill, dist: Path, repository: str, tag: str, *, derived: bool) -> Path:
    """Writes the document as JSON into `dist`, completely or not at all; returns its path.

    repository, tag: the image's name. derived: the document gets this name, because the labels of an image that a user
    built FROM berth's are those of berth's image.
    """
    document = bill.document
    if derived:
        component = {**document["metadata"]["component"], "name": repository, "version": tag}
        document = {**document, "metadata": {**document["metadata"], "component": component}}
    path = dist / f"{repository.replace('/', '-')}-{tag}.cdx.json"
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    with explain_os_errors(path.parent, path.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as new:
            new.write_text(text, encoding="utf-8")
    return path
