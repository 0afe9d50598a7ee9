"""Archives as `docker save` writes them, for tests that read images."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Content = bytes | dict[str, Any]


def tar_of(*members: tuple[str, Content]) -> bytes:
    """A tar. Files have bytes, other members attributes of TarInfo; a path that ends in a slash is a folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name.rstrip("/"))
            member.mode, member.mtime = 0o755, 1_700_000_000
            if isinstance(content, bytes):
                member.size = len(content)
            else:
                for key, value in content.items():
                    setattr(member, key, value)
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
            tar.addfile(member, io.BytesIO(content if isinstance(content, bytes) else b""))
    return packed.getvalue()


def link(target: str) -> dict[str, Any]:
    return {"type": tarfile.SYMTYPE, "linkname": target}


def digest(plain: bytes) -> str:
    return f"sha256:{hashlib.sha256(plain).hexdigest()}"


def zstd(plain: bytes) -> bytes:
    return subprocess.run(["zstd", "-cq"], input=plain, capture_output=True, check=True).stdout


def archive(
    layers: Sequence[bytes],
    form: str,
    pack: Callable[[bytes], bytes] = gzip.compress,
    history: Sequence[Mapping[str, Any]] | None = None,
) -> bytes:
    """The output of `docker save` for these layers. form: `older` (up to engine 24), or `oci` with packed layers."""
    history = history or [{"created_by": f"RUN step {number}"} for number in range(len(layers))]
    config = json.dumps({"rootfs": {"diff_ids": [digest(each) for each in layers]}, "history": history}).encode()
    members: list[tuple[str, Content]] = []
    names: list[str] = []
    if form == "older":
        first: dict[bytes, str] = {}
        for number, each in enumerate(layers):
            names.append(f"{number}/layer.tar")
            # A repeated layer is a link to its first copy.
            members.append((names[-1], link(f"../{first[each]}") if each in first else each))
            first.setdefault(each, names[-1])
            members.append((f"{number}/VERSION", b"1.0"))
        config_name = "config.json"
    else:
        for each in layers:
            names.append(f"blobs/sha256/{digest(each)}")
            members.append((names[-1], pack(each)))
        config_name = "blobs/sha256/config"
        members.append(("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'))
    manifest = json.dumps([{"Config": config_name, "Layers": names}]).encode()
    return tar_of(*dict(members).items(), (config_name, config), ("manifest.json", manifest))
