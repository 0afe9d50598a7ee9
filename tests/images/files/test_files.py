"""The layers of EFA, SMDDP, GDRCopy and cuda-compat, built from doubles: contents and errors."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.common import engine, labels
from berth.common.errors import UserError
from berth.images.build import docker_build
from berth.images.build.base import VARIABLE
from berth.images.build.prepare import BuildOptions, prepare
from berth.images.network import build_files
from berth.images.pins import pins, pins_file

Pin = Callable[..., pins.Profile]
CopyFiles = Callable[..., None]
BuildError = Callable[[pins.Profile, str], str]


INSPECTION = r"""
import ctypes, importlib.metadata, json, os, pathlib, subprocess
def output(*words): return subprocess.run(words, capture_output=True, text=True).stdout.strip()
def files(*folders):
    return [str(p) for f in folders for p in pathlib.Path(f).rglob("*") if p.is_file() and p.name != "lock"]
cache = output("ldconfig", "-p")
for name in ("libnccl-net.so", "libnccl-net-ofi.so", "libfabric.so.1", "libgdrapi.so.2", "libsmddp.so",
             "/usr/local/cuda-compat/libcuda.so.1"):
    ctypes.CDLL(name)
try:
    import smdistributed.dataparallel
    imported = "it can be imported"
except RuntimeError as error:
    imported = str(error)
print(json.dumps({
    "fi_info": output("fi_info", "--version"),
    "smddp": importlib.metadata.version("smdistributed-dataparallel"),
    "imported": imported,
    "libcuda": "libcuda" in cache,
    "compat": sorted(os.listdir("/usr/local/cuda-compat")),
    "amazon": sorted(os.listdir("/opt/amazon")),
    "efa": sorted(files("/opt/amazon/efa")),
    "left": files("/var/lib/apt/lists", "/var/cache/apt/archives", "/var/log/apt", "/installer", "/files")
            + [p for p in files("/usr/include/libnl3", "/usr/share/python3") if p.endswith((".h", ".pyc"))],
    "netlink": "libnl-3.so.200" in cache,
    "huge": os.environ["FI_EFA_USE_HUGE_PAGE"],
}))
"""


def test_all_parts_are_built_from_a_mirror(
    address: str,
    kit_copy: Path,
    doubles: Any,
    pin: Pin,
    tmp_path: Path,
    client: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From an HTTP mirror to the labels; the layers above are empty because they don't matter here."""
    profile = pin(
        doubles.efa(packages="libnl-3-dev environment-modules"), doubles.smddp(), doubles.gdrcopy(), doubles.compat()
    )
    for above in ("deps.sh", "kit.sh"):
        (kit_copy / "docker" / "layers" / above).write_text("#!/bin/sh\n")
    monkeypatch.setattr(build_files, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(pins, "ROOT", kit_copy)
    lines: list[str] = []
    kit = pins_file.load(kit_copy / "docker" / "pins.toml")
    options = BuildOptions(profile.name, base_image=os.environ.get(VARIABLE), mirror=address)
    (plan,) = prepare(kit, ["train"], options, tmp_path / "secrets", lines.append)
    fetched = [line.split()[1] for line in lines if line.startswith("fetched ")]
    assert len(fetched) == len(profile.files) + 2, "each file, EFA's signature and its key"
    try:
        built = docker_build.run_build(
            replace(plan, tags=("berth-test:doubles",)), engine.find_client(), lambda *_: None
        )
        image = client.images.get("berth-test:doubles")
        words = {"entrypoint": ["python", "-c", INSPECTION], "network_mode": "none", "remove": True}
        seen = json.loads(client.containers.run(image.id, **words))
    finally:
        if client.images.list("berth-test:doubles"):
            client.images.remove("berth-test:doubles", force=True)
    versions = {part: file.version for part, file in profile.files.items()}
    assert labels.doubles(image.labels) == [f"{part} {version}" for part, version in sorted(versions.items())]
    assert seen == {
        "fi_info": "fi_info: 2.4.0+double",
        "smddp": versions["smddp"],
        "imported": "instance type not supported",
        "libcuda": False,
        "compat": ["libcuda.so", "libcuda.so.1"],
        "amazon": ["efa", "efa_installed_packages", "ofi-nccl"],
        "efa": ["/opt/amazon/efa/bin/fi_info", "/opt/amazon/efa/lib/libfabric.so.1"],
        "left": [],
        "netlink": True,
        "huge": "0",
    }
    assert "berth error" not in built.log.read_text()


PLUGIN = """
import ctypes
from berth.train.planning import efa
from mpi4py import MPI
print(efa.network_line(efa.detect(), "nccl"))
ctypes.CDLL("libnccl-net.so")
print(sorted({line.split()[-1] for line in open("/proc/self/maps") if "libfabric.so" in line}))
"""


def test_nccl_plugin_is_loaded_if_cuda_runtime_exists(
    kit_copy: Path,
    doubles: Any,
    pin: Pin,
    copy_to_docker_files: CopyFiles,
    build_as: Callable[..., docker_build.Built],
    client: docker.DockerClient,
) -> None:
    """The build loads it, and so does the launch plan. With MPI loaded it must still get EFA's libfabric."""
    profile = pin(doubles.efa(runtime=True))
    copy_to_docker_files()
    build_as("berth-test:files", "train", kit_copy, target="efa", profile=profile)
    folders = ("train", "berth/runtime", "berth/qa", "berth/contract")
    packages = {str(kit_copy / each): {"bind": f"/kit/berth/{Path(each).name}", "mode": "ro"} for each in folders}
    output = client.containers.run(
        "berth-test:files",
        entrypoint=["python", "-P", "-c", PLUGIN],
        environment={"PYTHONPATH": "/kit"},
        volumes=packages,
        network_mode="none",
        remove=True,
    )
    assert output.decode().splitlines() == [
        "network: NCCL over TCP: no EFA device is on this host",
        "['/opt/amazon/efa/lib/libfabric.so.1']",
    ]


def test_file_of_one_part_does_not_rebuild_other_parts(
    kit_copy: Path, build_as: Callable[..., docker_build.Built]
) -> None:
    # Build twice first: BuildKit may use either of two cached steps of different folders.
    ids = []
    for turn in range(3):
        if turn == 2:
            (kit_copy / "docker" / "files" / "of-another-profile.tar.gz").write_bytes(os.urandom(16))
        ids.append(build_as("berth-test:before", "train", kit_copy, target="smdistributed").image_id)
    assert ids[1] == ids[2]


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"sha256": "0" * 64}, "efa-installer.tar.gz is not the pinned file: its sha256 is "),
        pytest.param({"signer": 1, "key": 1}, "efa-installer.tar.gz is signed by the key ", marks=pytest.mark.nightly),
        ({"signer": 1}, "efa-installer.tar.gz.sig is not a signature by the key in efa.key: delete"),
        pytest.param(
            {"key": 1, "fingerprint": 1},
            "efa-installer.tar.gz.sig is not a signature by the key in efa.key: delete",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["hash", "unpinned-key", "another-signer", "another-efa.key-and-fingerprint"],
)
def test_installer_with_another_hash_or_key_is_refused(
    faults: dict[str, Any],
    message: str,
    doubles: Any,
    pin: Pin,
    copy_to_docker_files: CopyFiles,
    build_error: BuildError,
) -> None:
    profile = pin(doubles.efa(), **faults)
    copy_to_docker_files()
    assert build_error(profile, "files").startswith(message)


def test_wrong_signature_is_refused(
    mirror: Path,
    doubles: Any,
    pin: Pin,
    copy_to_docker_files: CopyFiles,
    build_error: BuildError,
    signers: tuple[Any, Any],
) -> None:
    profile = pin(doubles.efa())
    (mirror / "other").write_bytes(b"other")
    signers[0].sign(mirror / "other")
    (mirror / "other.sig").replace(mirror / "efa-installer.tar.gz.sig")
    copy_to_docker_files()
    message = build_error(profile, "files")
    assert message.startswith("efa-installer.tar.gz.sig is not the signature of this efa-installer.tar.gz: delete")


@pytest.mark.parametrize(
    ("absent", "why"),
    [
        ("efa-installer.tar.gz", "(the profile names no URL for it)"),
        pytest.param("efa-installer.tar.gz.sig", "(the profile names no URL for it)", marks=pytest.mark.nightly),
        ("efa.key", "(https://invalid/efa.key: <urlopen error "),
    ],
    ids=["installer", "signature", "key"],
)
def test_missing_file_is_refused(
    absent: str, why: str, doubles: Any, pin: Pin, copy_to_docker_files: CopyFiles, build_error: BuildError
) -> None:
    """Plain `docker build`; build.py would refuse earlier."""
    profile = pin(doubles.efa())
    copy_to_docker_files(omit=absent)
    sentence = build_error(profile, "files")
    assert sentence.startswith(
        f"{absent}, which efa 1.47.0+double needs, is not in docker/files and can't be downloaded {why}"
    )
    assert sentence.endswith(
        "put it into docker/files, or build without it (--build-arg WITHOUT=efa; build.py build --without efa)."
    )


def test_archive_without_installer_is_refused(
    tmp_path: Path, pin: Pin, copy_to_docker_files: CopyFiles, build_error: BuildError
) -> None:
    (tmp_path / "efa-installer.tar.gz").write_bytes(b"no archive")
    profile = pin(tmp_path / "efa-installer.tar.gz")
    copy_to_docker_files()
    assert build_error(profile, "files").startswith(
        "efa-installer.tar.gz can't be unpacked to an efa_installer.sh: pin AWS's"
    )


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"exit_code": 7}, "AWS's EFA installer 1.47.0+double ended with exit code 7: see what it says, or build with"),
        pytest.param(
            {"version": "1.46.0"},
            "EFA's installer says that it is version 1.46.0, and docker/pins.toml has 1.47.0+doub",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            {"name": "libother.so"},
            "EFA's installer 1.47.0+double brought no /opt/amazon/ofi-nccl/lib/libnccl-net-ofi.",
            marks=pytest.mark.nightly,
        ),
        (
            {"runtime": True, "plugin_unloadable": True},
            "NCCL's plugin of EFA's installer 1.47.0+double can't be loaded, and",
        ),
    ],
    ids=["fails", "another-version", "no-plugin", "plugin-that-can't-be-loaded"],
)
def test_incomplete_installation_is_refused(
    faults: dict[str, Any],
    message: str,
    doubles: Any,
    pin: Pin,
    copy_to_docker_files: CopyFiles,
    build_error: BuildError,
) -> None:
    profile = pin(doubles.efa(**faults))
    copy_to_docker_files()
    assert build_error(profile, "efa").startswith(message)


@pytest.mark.parametrize(
    ("part", "faults", "target", "message"),
    [
        pytest.param(
            "smddp",
            {"version": "2.5.0", "name": "smdistributed_dataparallel-2.5.0-py3-none-any.whl"},
            "smdistributed",
            "the wheel holds SMDDP 2.5.0, and docker/pins.toml has 2.6.0+double",
            marks=pytest.mark.nightly,
        ),
        (
            "smddp",
            {"version": "2.5.0"},
            "smdistributed",
            "the wheel of SMDDP 2.6.0+double can't be installed: see the reason above",
        ),
        (
            "gdrcopy",
            {"version": "2.4"},
            "files",
            "libgdrapi.deb has version 2.4-1, and docker/pins.toml has 2.5+double",
        ),
        pytest.param(
            "gdrcopy",
            {"name": "libother.so.2"},
            "files",
            "libgdrapi.deb does not contain libgdrapi.so.?: pin the package of the library.",
            marks=pytest.mark.nightly,
        ),
        (
            "compat",
            {"unloadable": True},
            "compat",
            "libcuda of cuda-compat 580.1+double can't be loaded: see the reason",
        ),
    ],
    ids=[
        "smddp-of-another-version",
        "smddp-misnamed",
        "gdrcopy-of-another-version",
        "gdrcopy-without-library",
        "compat-that-can't-be-loaded",
    ],
)
def test_wrong_version_of_other_parts_is_refused(
    part: str,
    faults: dict[str, Any],
    target: str,
    message: str,
    doubles: Any,
    pin: Pin,
    copy_to_docker_files: CopyFiles,
    build_error: BuildError,
) -> None:
    profile = pin(getattr(doubles, part)(**faults))
    copy_to_docker_files()
    assert build_error(profile, target).startswith(message)


def test_incomplete_mirror_is_refused_before_the_build(
    mirror: Path, kit_copy: Path, doubles: Any, pin: Pin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = pin(doubles.efa(), doubles.gdrcopy())
    (mirror / "libgdrapi.deb").unlink()
    (mirror / "efa.key").unlink()
    monkeypatch.setattr(build_files, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(pins, "ROOT", kit_copy)
    kit = pins_file.load(kit_copy / "docker" / "pins.toml")
    with pytest.raises(UserError) as refusal:
        prepare(kit, ["train"], BuildOptions(profile.name, mirror=str(mirror)), tmp_path / "secrets", print)
    assert str(refusal.value) == (
        f"the mirror {mirror} does not have efa.key, which efa 1.47.0+double needs: put it there, or build with "
        f"--without efa.\nthe mirror {mirror} does not have libgdrapi.deb, which gdrcopy 2.5+double needs: put it "
        "there, or build with --without gdrcopy."
    )
    assert os.listdir(kit_copy / "docker" / "files") == [".gitignore"]
    assert not (tmp_path / "cache").exists()
