"""No secret of a network stays in an image: a build with canaries, then every layer, config and history searched.

Files that a later layer deletes are found too, for each layer is read by itself.
"""

import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from berth.images import build, engine, network, pins
from berth.images.plan import BuildPlan, Revision, build_plan

CANARY = "berth-canary-7f3a91"
PUBLIC_HOSTS = "deb.debian.org,security.debian.org,pypi.org,files.pythonhosted.org,download.pytorch.org,localhost"


@pytest.fixture(scope="module", params=pins.IMAGES)
def canary_image(
    request: pytest.FixtureRequest, client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An image built without cache, with a canary in each secret, proxy and AWS variable."""
    folder = tmp_path_factory.mktemp(f"canaries-{request.param}")
    kit = pins.load()
    here = network.gather(os.environ)
    ca = folder / "ca.pem"
    ca.write_text(f"# {CANARY}-ca\n" + (here.ca.read_text() if here.ca else certifi_bundle()))
    index = replace(
        here.index,
        url=with_password(here.index.url or "https://pypi.org/simple", f"{CANARY}-pip"),
    )
    planted = replace(
        here,
        ca=ca,
        index=index,
        apt=here.apt + f'Acquire::http::User-Agent "{CANARY}-apt";\n',
        apt_auth=here.apt_auth + f"machine canary.invalid login x password {CANARY}-auth\n",
    )
    build.link_local_wheels(here, kit.profile(pins.DEFAULT_PROFILE))
    base = build.base_at_hand(kit, None)
    plan = build_plan(
        kit,
        kit.profile(pins.DEFAULT_PROFILE),
        request.param,
        version=pins.version(),
        revision=Revision("canary"),
        base=base,
        secrets=planted.write_secrets(folder / "secrets"),
        proxies=("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
        root=pins.ROOT,
    )
    tag = f"berth-canary:{request.param}"
    words = [word for word in plan.argv if not word.startswith(f"berth-{request.param}:")]
    argv = [words[0], "--no-cache", *(word for word in words[1:-1] if word != "--tag"), "--tag", tag, words[-1]]
    hosts = ",".join(filter(None, [PUBLIC_HOSTS, os.environ.get("NO_PROXY"), os.environ.get("no_proxy")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTP_PROXY", f"http://x:{CANARY}-proxy@proxy.invalid:3128")
        patch.setenv("HTTPS_PROXY", f"http://x:{CANARY}-proxy@proxy.invalid:3128")
        patch.setenv("NO_PROXY", hosts)
        patch.setenv("AWS_SECRET_ACCESS_KEY", f"{CANARY}-aws")
        patch.setenv("AWS_SESSION_TOKEN", f"{CANARY}-token")
        built = build.run(
            BuildPlan(request.param, pins.DEFAULT_PROFILE, (tag,), tuple(argv)), engine.find_client(), lambda *_: None
        )
    # The proxy's password may stand in no log either.
    assert CANARY not in built.log.read_text()
    try:
        yield tag
    finally:
        client.images.remove(tag, force=True)


def certifi_bundle() -> str:
    import certifi

    return Path(certifi.where()).read_text()


def with_password(url: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://canary:{password}@{rest.rpartition('@')[2]}"


def test_no_canary_in_any_layer_config_or_history(
    canary_image: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    archive = tmp_path / "image.tar"
    with archive.open("wb") as file:
        for chunk in client.images.get(canary_image).save(named=True):
            file.write(chunk)
    needle = CANARY.encode()
    files = 0
    with tarfile.open(archive) as image:
        for member in image:
            reader = image.extractfile(member)
            if reader is None:
                continue
            if member.name.endswith("layer.tar"):
                files += sum(1 for _ in searched_files(reader, needle, member.name))
            else:
                assert needle not in reader.read(), member.name
    assert files > 5000, "the layers were not read"


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


def test_history_names_no_secret_and_no_proxy(canary_image: str, client: docker.DockerClient) -> None:
    image = client.images.get(canary_image)
    told = json.dumps([image.history(), image.attrs])
    assert "proxy.invalid" not in told
    assert CANARY not in told
