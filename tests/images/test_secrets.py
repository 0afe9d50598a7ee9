"""No secret of a network stays in an image: a build with canaries, then every layer, config and history searched.

Files that a later layer deletes are found too, for each layer is read by itself.
"""

import io
import json
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import certifi
import docker
import pytest

from berth.images import build, network, pins

CANARY = "berth-canary-7f3a91"
PUBLIC_HOSTS = "deb.debian.org,security.debian.org,pypi.org,files.pythonhosted.org,download.pytorch.org,localhost"


@pytest.fixture(params=pins.IMAGES)
def canary_image(
    request: pytest.FixtureRequest,
    client: docker.DockerClient,
    kit_copy: Path,
    tmp_path: Path,
    build_as: Callable[..., build.Built],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """An image built with a canary in each secret, proxy and AWS variable, with nothing taken from the build cache."""
    here = network.gather(os.environ)
    ca = tmp_path / "ca.pem"
    ca.write_text(f"# {CANARY}-ca\n" + (here.ca.read_text() if here.ca else Path(certifi.where()).read_text()))
    planted = replace(
        here,
        ca=ca,
        index=replace(here.index, url=with_password(here.index.url or "https://pypi.org/simple", f"{CANARY}-pip")),
        apt=here.apt + f'Acquire::http::User-Agent "{CANARY}-apt";\n',
        apt_auth=here.apt_auth + f"machine canary.invalid login x password {CANARY}-auth\n",
        proxies=("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    )
    # BuildKit's cache does not look at secrets. A layer script of its own makes this build another one from the first
    # step on; `--no-cache` would put its layers in the place of the developer's own.
    with (kit_copy / "docker" / "layers" / "network.sh").open("a") as file:
        file.write(f"# {secrets.token_hex(8)}\n")
    hosts = ",".join(filter(None, [PUBLIC_HOSTS, os.environ.get("NO_PROXY"), os.environ.get("no_proxy")]))
    for name, value in {
        "HTTP_PROXY": f"http://x:{CANARY}-proxy@proxy.invalid:3128",
        "HTTPS_PROXY": f"http://x:{CANARY}-proxy@proxy.invalid:3128",
        "NO_PROXY": hosts,
        "AWS_SECRET_ACCESS_KEY": f"{CANARY}-aws",
        "AWS_SESSION_TOKEN": f"{CANARY}-token",
    }.items():
        monkeypatch.setenv(name, value)
    kept = set(cache_records(client))
    tag = f"berth-test:canary-{request.param}"
    built = build_as(tag, request.param, kit_copy, settings=planted, secrets=tmp_path / "secrets")
    log = built.log.read_text()
    assert "CACHED" not in log.partition("[python")[2], "a step came from the cache, perhaps without the canaries"
    # The proxy's password may stand in no log either.
    assert CANARY not in log
    yield tag
    client.images.remove(tag, force=True)
    for record in cache_records(client):
        if record not in kept:
            client.api.prune_builds(filters={"id": record}, all=True)


def cache_records(client: docker.DockerClient) -> list[str]:
    """The ids of what BuildKit keeps, newest first, for the older ones go only after those made on top of them."""
    records = sorted(client.api.df()["BuildCache"], key=lambda record: record["CreatedAt"], reverse=True)
    return [record["ID"] for record in records]


def with_password(url: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://canary:{password}@{rest.rpartition('@')[2]}"


def test_no_canary_in_any_layer_config_or_history(
    canary_image: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    image = client.images.get(canary_image)
    told = json.dumps([image.history(), image.attrs])
    assert "proxy.invalid" not in told
    assert CANARY not in told
    archive = tmp_path / "image.tar"
    with archive.open("wb") as file:
        for chunk in image.save(named=True):
            file.write(chunk)
    needle = CANARY.encode()
    layers = manifest_layers(archive)
    files = 0
    with tarfile.open(archive) as saved:
        for member in saved:
            reader = saved.extractfile(member)
            if reader is None:
                continue
            if member.name in layers:
                files += sum(1 for _ in searched_files(reader, needle, member.name))
            else:
                assert needle not in reader.read(), member.name
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
