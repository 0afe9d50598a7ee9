"""Images contain no network secret and no private key: every layer of a build with canaries is searched.

Each layer is read separately, so files that a later layer deletes are found too.
"""

import json
import re
import tarfile
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO

import docker
import pytest

CANARY = b"berth-canary-7f3a91"  # conftest.py plants it
# Includes the first line of a key's body, because libraries that read keys contain only the line before it.
PRIVATE_KEY = re.compile(rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----\s+([\w-]+: [^\n]*\s+)*[A-Za-z0-9+/]{40}")
# GnuTLS contains public test keys (lib/crypto-selftests-pk.c).
PUBLIC_TEST_KEYS = re.compile(r"/libgnutls\.so[.\d]*$")
HOST_KEY = re.compile(r"(^|[:/])etc/ssh/ssh_host_\w+_key$")
CHUNK, OVERLAP = 1 << 20, 1024


@dataclass
class Searched:
    """The findings in all layers of one image, each as LAYER:PATH."""

    files: int = 0
    canaries: list[str] = field(default_factory=list)
    private_keys: list[str] = field(default_factory=list)
    bytecode_by_time: list[str] = field(default_factory=list)

    def search(self, name: str, reader: IO[bytes] | None) -> None:
        """Searches one member of a layer; folders and links have no reader."""
        self.files += 1
        if CANARY in name.encode(errors="surrogateescape"):
            self.canaries.append(name)
        if HOST_KEY.search(name):
            self.private_keys.append(name)
        end = b""
        while reader is not None and (chunk := reader.read(CHUNK)):
            if name.endswith(".pyc") and not end and not hash_based(chunk):
                self.bytecode_by_time.append(name)
            if CANARY in end + chunk:
                self.canaries.append(name)
            if b"PRIVATE KEY-----" in end + chunk and PRIVATE_KEY.search(end + chunk):
                self.private_keys.append(name)
            end = chunk[-OVERLAP:]


@pytest.fixture(scope="module")
def searched(canary_image: str, client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """The findings in every file of every layer, and in config and manifest."""
    archive = tmp_path_factory.mktemp("saved") / "image.tar"
    with archive.open("wb") as file:
        for chunk in client.images.get(canary_image).save(named=True):
            file.write(chunk)
    findings = Searched()
    layers = manifest_layers(archive)
    with tarfile.open(archive) as saved:
        for member in saved:
            reader = saved.extractfile(member)
            if member.name in layers and reader is not None:
                with tarfile.open(fileobj=reader) as layer:
                    for each in layer:
                        findings.search(f"{member.name}:{each.name}", layer.extractfile(each) if each.isreg() else None)
            else:
                findings.search(member.name, reader)
    archive.unlink()
    assert findings.files > 5000, "the layers were not read"
    return findings


def manifest_layers(archive: Path) -> set[str]:
    """The members that are layers, in either form of `docker save`'s archive."""
    with tarfile.open(archive) as saved:
        manifest = saved.extractfile("manifest.json")
        assert manifest is not None
        return set(json.load(manifest)[0]["Layers"])


def hash_based(bytecode: bytes) -> bool:
    """Whether a .pyc is checked by its source's hash: the flags of PEP 552."""
    return int.from_bytes(bytecode[4:8], "little") == 0b11


def test_layers_config_and_history_contain_no_secret(
    canary_image: str, searched: Searched, client: docker.DockerClient
) -> None:
    image = client.images.get(canary_image)
    described = json.dumps([image.history(), image.attrs])
    assert "proxy.invalid" not in described
    assert CANARY.decode() not in described
    assert searched.canaries == []


def test_layers_contain_no_private_key(searched: Searched) -> None:
    """Debian makes ssh's host keys when it installs ssh; a key that a later step deletes would still be pulled."""
    assert [name for name in searched.private_keys if not PUBLIC_TEST_KEYS.search(name)] == []


def test_bytecode_is_checked_by_hash(searched: Searched) -> None:
    """A source's time differs between builds."""
    assert searched.bytecode_by_time == []


def test_search_finds_private_keys_but_not_their_readers() -> None:
    """Tests the search itself, also for keys that span two reads."""
    body = b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
    findings = Searched()
    for name, content in {
        "key": b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + body,
        "encrypted": b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\n" + body,
        "edge": b"x" * (CHUNK - 20) + b"-----BEGIN PRIVATE KEY-----\r\n" + body,
        "reader": b'BEGIN = "-----BEGIN PRIVATE KEY-----"\nEND = "-----END PRIVATE KEY-----"\n',
        "certificate": b"-----BEGIN CERTIFICATE-----\n" + body,
    }.items():
        findings.search(name, BytesIO(content))
    findings.search("layer:etc/ssh/ssh_host_ed25519_key", None)
    findings.search("layer:etc/ssh/ssh_host_ed25519_key.pub", None)
    assert findings.private_keys == ["key", "encrypted", "edge", "layer:etc/ssh/ssh_host_ed25519_key"]
