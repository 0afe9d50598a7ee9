"""The text of a lock: its packages, the request that it was made for, and the layer of each package of torch's."""

import hashlib
import re
from collections.abc import Iterator

from berth.common.errors import UserError
from berth.images.pins.layer_files import HEADER

# NVIDIA's packages by layer, by the word after `nvidia-`: few enough to read, none so large that it is pulled alone.
NVIDIA_LAYERS = {
    "cuda": ("cuda", "cublas", "cufile", "nvjitlink", "nvtx"),
    "math": ("cufft", "curand", "cusolver", "cusparse", "cusparselt"),
    "cudnn": ("cudnn",),
    "nccl": ("nccl", "nvshmem"),
}


TORCH_LAYERS = ("pytorch", *NVIDIA_LAYERS)
"""The layers of torch and of what it asks for, which one request locks."""


def nvidia_layer(package: str) -> str | None:
    """The layer that a package of NVIDIA's belongs to, such as nccl for nvidia-nccl-cu13; None for any other package.

    UserError for one that no layer has a place for: a newer torch may ask for more.
    """
    if package.startswith("cuda-"):  # cuda-toolkit, cuda-bindings, cuda-pathfinder
        return "cuda"
    if not package.startswith("nvidia-"):
        return None
    word = package.split("-")[1]
    for layer, words in NVIDIA_LAYERS.items():
        if word in words:
            return layer
    raise UserError(
        f"torch asks for {package}, which no layer has a place for: add it to NVIDIA_LAYERS in "
        "berth/images/locks/lock_text.py."
    )


def entries(lock: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and text of each package of a lock's text, in its order."""
    for entry in re.findall(r"^\S.*\n(?:[ \t]+.*\n)*", lock, flags=re.MULTILINE):
        if found := re.match(r"([A-Za-z0-9._-]+)==([^ \\\n]+)", entry):
            yield found[1], found[2], entry


def split_lock(lock: str) -> dict[str, str]:
    """The text of a lock as one lock a layer, by layer, empty where a layer is; what is not NVIDIA's is `pytorch`'s."""
    parts = dict.fromkeys(("pytorch", *NVIDIA_LAYERS), "")
    for name, _, entry in entries(lock):
        parts[nvidia_layer(name) or "pytorch"] += entry
    return parts


def locked_names(lock: str) -> list[str]:
    """The packages that the text of a lock names, in its order."""
    return [name for name, _, _ in entries(lock)]


def sha256_of(content: bytes) -> str:
    """Its 64 digits."""
    return hashlib.sha256(content).hexdigest()


def lock_text(entries: str, digest: str) -> str:
    """A lock's file: what it was made of and by, then its packages."""
    return f"{HEADER}# Request: sha256:{digest}\n{entries}"


def request_of(lock: str) -> str:
    """The hash of the request that a lock's text was made for; empty if it names none."""
    found = re.search(r"^# Request: sha256:([0-9a-f]{64})$", lock, flags=re.MULTILINE)
    return found[1] if found else ""
