"""No secret of a network stays in an image: a build with canaries, then every layer, config and history searched.

Files that a later layer deletes are found too, for each layer is read by itself.
"""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker

CANARY = b"berth-canary-7f3a91"  # conftest.py plants it


def test_no_canary_in_any_layer_config_or_history(
    canary_image: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    image = client.images.get(canary_image)
    told = json.dumps([image.history(), image.attrs])
    assert "proxy.invalid" not in told
    assert CANARY.decode() not in told
    archive = tmp_path / "image.tar"
    with archive.open("wb") as file:
        for chunk in image.save(named=True):
            file.write(chunk)
    layers = manifest_layers(archive)
    files = 0
    with tarfile.open(archive) as saved:
        for member in saved:
            reader = saved.extractfile(member)
            if reader is None:
                continue
            if member.name in layers:
                files += sum(1 for _ in searched_files(reader, CANARY, member.name))
            else:
                assert CANARY not in reader.read(), member.name
    assert files > 5000, "the layers were not read"


def manifest_layers(archive: Path) -> set[str]:
    """The members that are layers, whichever of its two forms `docker save` gave the archive."""
    with tarfile.open(archive) as saved:
        manifest = saved.extractfile("manifest.json")
        assert manifest is not None
        return set(json.load(manifest)[0]["Layers"])


def searched_files(layer: io.BufferedIOBase, needle: bytes, where: str) -> Iterator[str]:
    """Every file of a layer, its name and its bytes searched."""
    with tarfile.open(fileobj=layer) as tar:
        for member in tar:
            name = f"{where}:{member.name}"
            assert needle not in member.name.encode(errors="surrogateescape"), name
            reader = tar.extractfile(member) if member.isreg() else None
            if reader is not None:
                kept = b""
                while chunk := reader.read(1 << 20):
                    assert needle not in kept + chunk, name
                    if name.endswith(".pyc") and not kept:
                        assert hash_based(chunk), (
                            f"{name} depends on its source's time, which differs from build to build"
                        )
                    kept = chunk[-len(needle) :]
            yield name


def hash_based(bytecode: bytes) -> bool:
    """Whether a .pyc is checked by its source's hash: the flags of PEP 552."""
    return int.from_bytes(bytecode[4:8], "little") == 0b11
