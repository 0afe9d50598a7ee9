"""Measures an image by layer and by Python package, compressed and not, and compares it with its budget.

Size costs time: SageMaker pulls the image for every job and every scale-out. Compressed means the sum of the gzipped
layers (level 6), which is what hosts download; MB are 10^6 bytes.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError
from docker.models.images import Image
from rich.console import Group
from rich.table import Table
from rich.text import Text

from berth.common.containers import run_once
from berth.common.engine import find_image
from berth.common.kept import Kept
from berth.images.inspect import package_sizes
from berth.images.inspect.layers import Layer, layer_names, read_layers, saved_archive
from berth.images.pins.pins import CACHE

TOP_PACKAGES = 15
_MB = 1_000_000
# The layers of files that are not packages: EFA, SMDDP with GDRCopy, and cuda-compat. A build may leave each out, so
# they don't count for the budget.
FILE_LAYERS = ("efa", "smdistributed", "compat")
_NOTICED_MB = 0.1
_USER_CACHE = CACHE / "measured"
_KEPT = 2000


@dataclass(frozen=True, slots=True)
class PackageSize:
    """One Python package in the image; sizes in bytes, `compressed` as one gzip stream of its own."""

    name: str
    version: str
    size: int
    compressed: int


@dataclass(frozen=True, slots=True)
class ImageSize:
    """An image's layers, lowest first, and packages, largest first.

    `budget_mb` is compressed, without the layers of files that are not packages; None for no limit.
    """

    image: str
    layers: tuple[Layer, ...]
    packages: tuple[PackageSize, ...]
    budget_mb: float | None = None

    @property
    def size(self) -> int:
        """Bytes of all layers, plain."""
        return sum(layer.size for layer in self.layers)

    @property
    def compressed(self) -> int:
        """Bytes of all layers, gzipped."""
        return sum(layer.compressed for layer in self.layers)

    @property
    def files(self) -> int:
        """Gzipped bytes of the layers of files that are not packages."""
        return sum(layer.compressed for layer in self.layers if layer.made_by in FILE_LAYERS)

    @property
    def over_mb(self) -> float:
        """Compressed megabytes above the budget, negative below it; 0 without one."""
        return 0.0 if self.budget_mb is None else (self.compressed - self.files) / _MB - self.budget_mb

    @property
    def within_budget(self) -> bool:
        """Whether the compressed image, without its files that are not packages, is within its budget."""
        return self.over_mb <= 0

    @property
    def weight(self) -> str:
        """Both sizes as a text."""
        return f"{self.compressed / _MB:.1f} MB compressed, {self.size / _MB:.1f} MB on disk"

    def verdict(self) -> str:
        """One line: both sizes and the budget."""
        line = f"{self.image}: {self.weight}"
        if self.budget_mb is None:
            return line
        plus_files = ""
        if self.files > _NOTICED_MB * _MB:
            plus_files = f" plus {self.files / _MB:.1f} MB of EFA, SMDDP or cuda-compat"
        return f"{line}; budget {self.budget_mb:.0f} MB compressed{plus_files}, " + (
            f"{-self.over_mb:.1f} MB to spare" if self.within_budget else f"exceeded by {self.over_mb:.1f} MB"
        )


def image_size(
    client: DockerClient,
    image: str,
    *,
    budget_mb: float | None = None,
    cache: Path | None = None,
    step: Callable[[str], None] = lambda done: None,
) -> ImageSize:
    """Measures an image on the engine. Images and layers that were measured before come from `cache` (default: the
    user's).

    step: called after each step with its description. Raises UserError if there is no such image, or the cache can't be
    written.
    """
    found, known = find_image(client, image), Kept(cache or _USER_CACHE, _KEPT)
    parts = known.load(str(found.id))
    if parts is None:
        layers = _layers(image, found, known, step)
        packages = _packages(client, str(found.id))
        step("the Python packages are measured")
        parts = {"layers": [asdict(each) for each in layers], "packages": [asdict(each) for each in packages]}
        known.store(str(found.id), parts)
    measured = tuple(Layer(**each) for each in parts["layers"])
    return ImageSize(image, measured, tuple(PackageSize(**each) for each in parts["packages"]), budget_mb)


def render_size(measured: ImageSize) -> Group:
    """The tables and the verdict, for a rich console."""
    # Text, because rich would read `:train:` in a plain title as an emoji.
    title = Text(f"{measured.image}: layers, lowest first")
    layers = Table("layer", "MB", "MB gzipped", title=title, title_justify="left")
    for layer in measured.layers:
        layers.add_row(Text(layer.made_by), f"{layer.size / _MB:.1f}", f"{layer.compressed / _MB:.1f}")
    layers.add_section()
    layers.add_row("all", f"{measured.size / _MB:.1f}", f"{measured.compressed / _MB:.1f}")
    title = Text(f"{measured.image}: the {TOP_PACKAGES} largest Python packages")
    largest = Table("package", "version", "MB", "MB gzipped", title=title, title_justify="left")
    for each in measured.packages[:TOP_PACKAGES]:
        largest.add_row(each.name, each.version, f"{each.size / _MB:.1f}", f"{each.compressed / _MB:.1f}")
    for table in (layers, largest):
        for column in table.columns[-2:]:
            column.justify = "right"
    return Group(layers, largest, Text(measured.verdict(), style="" if measured.within_budget else "bold red"))


def _layers(name: str, image: Image, known: Kept, step: Callable[[str], None]) -> list[Layer]:
    """Saves the image next to the cache and measures its layers. Known layers are not measured again; if all are known,
    the image is not saved.
    """
    digests: list[str] = image.attrs["RootFS"]["Layers"]
    sizes = {digest: (kept["size"], kept["compressed"]) for digest in digests if (kept := known.load(digest))}
    names = layer_names(image.history(), digests)
    if all(digest in sizes and digest in names for digest in digests):
        return [Layer(digest, names[digest], *sizes[digest]) for digest in digests]
    with saved_archive(image, name, known.folder) as archive:
        step("the engine has sent the image")
        layers = read_layers(archive, sizes, step)
    for layer in layers:
        known.store(layer.digest, {"size": layer.size, "compressed": layer.compressed})
    return layers


def _packages(client: DockerClient, image_id: str) -> list[PackageSize]:
    """The sizes of the packages of the image's Python, largest first; empty if the image has no Python."""
    try:
        printed = run_once(client, image_id, ["python", "-c", Path(package_sizes.__file__).read_text()])
    except APIError as error:
        if "executable file not found" in str(error.explanation):
            return []
        raise
    return sorted((PackageSize(*each) for each in json.loads(printed)), key=lambda each: (-each.compressed, each.name))
