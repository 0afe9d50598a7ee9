"""Reads and writes the text of a lock: its packages and the hash of its request; splits torch's lock into layers."""

import re
from collections.abc import Iterator

from berth.common.errors import UserError
from berth.images.pins.layer_files import HEADER

# NVIDIA's packages per layer, by the word after `nvidia-`: few layers, none so large that its pull takes longest.
NVIDIA_LAYERS = {
    "cuda": ("cuda", "cublas", "cufile", "nvjitlink", "nvtx"),
    "math": ("cufft", "curand", "cusolver", "cusparse", "cusparselt"),
    "cudnn": ("cudnn",),
    "nccl": ("nccl", "nvshmem"),
}


TORCH_LAYERS = ("pytorch", *NVIDIA_LAYERS)
"""The layers of torch and its dependencies, which one request locks."""


def nvidia_layer(package: str) -> str | None:
    """The layer that a package of NVIDIA's belongs to, such as nccl for nvidia-nccl-cu13; None for any other package.

    UserError for an unknown one: a newer torch may require more packages.
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
        f"torch requires {package}, which no layer contains: add it to NVIDIA_LAYERS in "
        "berth/images/locks/lock_text.py."
    )


def entries(lock: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and text of each package in a lock, in its order."""
    for entry in re.findall(r"^\S.*\n(?:[ \t]+.*\n)*", lock, flags=re.MULTILINE):
        if found := re.match(r"([A-Za-z0-9._-]+)==([^ \\\n]+)", entry):
            yield found[1], found[2], entry


def split_lock(lock: str) -> dict[str, str]:
    """Splits torch's lock by layer; a layer may be empty. Packages that are not NVIDIA's go into `pytorch`."""
    parts = dict.fromkeys(("pytorch", *NVIDIA_LAYERS), "")
    for name, _, entry in entries(lock):
        parts[nvidia_layer(name) or "pytorch"] += entry
    return parts


def locked_names(lock: str) -> list[str]:
    """The names of the packages in a lock, in its order."""
    return [name for name, _, _ in entries(lock)]


def lock_text(entries: str, digest: str) -> str:
    """The text of a lock file: a header with the hash of its request, then its packages."""
    return f"{HEADER}# Request: sha256:{digest}\n{entries}"


def request_of(lock: str) -> str:
    """The hash of the request in a lock's header; empty if there is none."""
    found = re.search(r"^# Request: sha256:([0-9a-f]{64})$", lock, flags=re.MULTILINE)
    return found[1] if found else ""
