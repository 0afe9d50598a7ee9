"""Completing a request with uv, and errors that suggest versions that work."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images.locks.lock_text import entries
from berth.images.locks.locks import LOCKS, cuda_parts, torch_locks
from berth.images.network.build_network import Network, PackageIndex
from berth.images.pins import pins, pins_file
from berth.images.profiles.complete import complete
from berth.images.profiles.request import ProfileRequest
from tests.doubles.package_index import JsonIndex, json_index, wheel

pytestmark = pytest.mark.slow

PINS = pins_file.load()
CPU = PINS.profile("cpu")
FILES = (
    ("transformers", "4.46.3", "2024-11-18", "Provides-Extra: torch\nRequires-Dist: torch>=1.13; extra == 'torch'\n"),
    ("transformers", "5.1.0", "2026-08-01", "Provides-Extra: torch\nRequires-Dist: torch>=2.6; extra == 'torch'\n"),
    ("accelerate", "1.1.1", "2024-11-12", ""),
    ("accelerate", "1.6.0", "2025-04-01", ""),
    ("datasets", "3.1.0", "2024-10-31", ""),
    ("datasets", "5.0.0", "2026-05-01", "Requires-Dist: pyarrow>=24\n"),
    ("peft", "0.14.0", "2024-12-06", "Requires-Dist: transformers<5\n"),
    ("peft", "0.15.0", "2025-03-19", "Requires-Dist: transformers<5\n"),
    ("pyarrow", "18.0.0", "2024-10-30", ""),
    ("pyarrow", "24.0.0", "2026-04-01", ""),
    ("einops", "0.8.1", "2025-02-09", ""),
    ("evaluate", "0.4.3", "2024-09-11", ""),
    ("evaluate", "0.4.6", "2025-09-18", ""),
    ("scikit_learn", "1.5.2", "2024-09-11", ""),
    ("scikit_learn", "1.6.1", "2025-01-10", ""),
    ("scikit_learn", "1.9.1", "2026-06-01", ""),
    ("pillow", "11.0.0", "2024-10-15", ""),
    ("pillow", "13.0.0", "2026-07-01", ""),
    ("tensorboardx", "2.6.5", "2024-01-01", ""),
)


@pytest.fixture(scope="module")
def running_index() -> Iterator[JsonIndex]:
    """An index with some packages."""
    with json_index() as index:
        for name, version, day, requires in FILES:
            index.add(name, version, requires, upload_time=f"{day}T00:00:00Z")
        yield index


@pytest.fixture(scope="module")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def served(running_index: JsonIndex, uv_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> JsonIndex:
    """The index, to which a test may add files, and a folder with the torch of profile cpu."""
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    (tmp_path / "wheels").mkdir()
    add_torch(tmp_path / "wheels", CPU.torch)
    monkeypatch.setenv("UV_DEFAULT_INDEX", running_index.url)
    monkeypatch.setattr(running_index, "files", dict(running_index.files))
    monkeypatch.setattr(running_index, "facts", dict(running_index.facts))
    monkeypatch.setattr(running_index, "silent", False)
    return running_index


def add_torch(folder: Path, version: str) -> None:
    (folder / f"torch-{version}-py3-none-any.whl").write_bytes(wheel("torch", "WORD = 1\n", version))


@pytest.fixture
def network(served: JsonIndex, tmp_path: Path) -> Network:
    return Network(None, PackageIndex(url=served.url, folders=(tmp_path / "wheels",)), (), "", "", "")


def test_missing_versions_are_resolved_as_of_the_day(network: Network) -> None:
    """The pinned scikit-learn is newer than the day, so an older one is chosen; the pinned tensorboardx is not."""
    request = ProfileRequest("own", versions={"transformers": "4.46.3"}, packages=["peft==0.15.0", "einops"])
    found = complete(request, PINS, network)
    assert (found.day, found.hardware) == ("2025-04-18", {})
    assert found.versions == {"transformers": "4.46.3", "accelerate": "1.6.0", "datasets": "3.1.0"}
    own = ["peft==0.15.0", "einops==0.8.1"]
    assert list(found.packages) == [*own, "evaluate==0.4.3", "scikit-learn==1.6.1", "pillow==11.0.0"]


def test_complete_explains_first_release_and_day(served: JsonIndex, network: Network) -> None:
    for micro in ("0", "1", "2", "3rc1"):
        served.add("liner", f"4.46.{micro}", upload_time="2024-11-01T00:00:00Z")
    served.add("liner", "4.47.0", upload_time="2024-12-20T00:00:00Z")
    steps: list[str] = []
    found = complete(ProfileRequest("own", packages=["liner==4.46"]), PINS, network, steps.append)
    assert "liner 4.46 is the first release of that line; the newest is 4.46.2" in steps
    assert "all other versions are as of 2024-12-01, 30 days after liner 4.46; --day changes it" in steps
    assert found.day == "2024-12-01"
    steps.clear()
    complete(ProfileRequest("own", packages=["liner==4.47"]), PINS, network, steps.append)
    assert not [each for each in steps if "first release" in each], "4.47 has only one release"


def test_request_without_versions_gets_the_newest(network: Network) -> None:
    found = complete(ProfileRequest("own"), PINS, network)
    assert (found.versions["transformers"], found.versions["datasets"]) == ("5.1.0", "5.0.0")
    assert (found.day, found.packages) == ("", [])


@pytest.mark.parametrize(
    ("wanted", "facts"),
    [
        (
            ProfileRequest("own", versions={"transformers": "4.46.9"}),
            ["transformers==4.46.9 was never released", "4.46.3 and 5.1.0"],
        ),
        (
            ProfileRequest("own", packages=["pefft==1", "xyz==2"]),
            ["no package pefft", "no package xyz"],
        ),
        (
            ProfileRequest("own", versions={"transformers": "5.1.0"}, packages=["peft==0.15.0"]),
            [
                "transformers<5",
                "choose transformers 4.46.3, the newest that fits the rest",
            ],
        ),
        (ProfileRequest("own", constraints=["transformers<4"]), ["transformers<4 was never released", "5.1.0"]),
        (
            ProfileRequest("own", packages=["peft==0.15.0"], constraints=["peft<0.15"]),
            ["peft==0.15.0", "peft<0.15"],
        ),
        (
            ProfileRequest("own", versions={"datasets": "5.0.0"}, constraints=["pyarrow<19"]),
            ["choose datasets 3.1.0, the newest that fits the rest", "leave out --constraint 'pyarrow<19'"],
        ),
        (
            ProfileRequest("own", versions={"transformers": "4.46.3"}, day="2024-01-01"),
            ["transformers 4.46.3 came out on 2024-11-18", "--day 2024-11-18"],
        ),
        (
            ProfileRequest("own", constraints=["einops>=0.8"], packages=["einops"], day="2025-01-01"),
            ["einops", "2025-02-09", "give a later --day"],
        ),
        (ProfileRequest("own", packages=["evaluat==0.4"]), ["no package evaluat: did you mean evaluate?"]),
        (ProfileRequest("own", constraints=["numpy<2"]), ["no package numpy: check whether pip's index-url"]),
        (ProfileRequest("own", constraints=["einopz<1"]), ["no package einopz"]),
    ],
)
def test_impossible_request_is_reported_with_a_remedy(
    network: Network, wanted: ProfileRequest, facts: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        complete(wanted, PINS, network)
    for fact in facts:
        assert fact in str(caught.value)


def test_release_for_another_python_is_reported(served: JsonIndex, network: Network) -> None:
    served.add("newer", "1.0", requires_python=">=3.13")
    for python in ("cp37-cp37m", "cp38-cp38", "cp39-cp39"):
        served.add("numpy", "1.20.0", tag=f"{python}-manylinux2010_x86_64")
    served.add("numpy", "1.23.2", tag="cp311-cp311-manylinux_2_17_x86_64")
    with pytest.raises(UserError) as caught:
        complete(ProfileRequest("own", packages=["newer==1.0", "numpy==1.20"]), PINS, network)
    assert "newer 1.0 has wheels for Python 3.13 to 3.14 only, but the base has Python 3.11" in str(caught.value)
    assert "numpy 1.20 has wheels for Python 3.7 to 3.9 only, but the base has Python 3.11: " in str(caught.value)
    assert "the nearest that can be installed is 1.23.2" in str(caught.value)


@pytest.mark.parametrize("package", ["deepspeed==0.15.4", "deepspeed"])
def test_package_without_wheels_is_reported(served: JsonIndex, network: Network, package: str) -> None:
    served.facts["deepspeed-0.15.4.tar.gz"] = {}
    with pytest.raises(UserError, match=r"^deepspeed 0\.15\.4 has no wheel for Python 3\.11, .* put a wheel of it"):
        complete(ProfileRequest("own", packages=[package]), PINS, network)


def test_silent_index_is_reported(served: JsonIndex, network: Network) -> None:
    served.silent = True
    with pytest.raises(UserError, match=rf"Failed to fetch: \S*{served.url}/transformers/.*: check that"):
        complete(ProfileRequest("own", versions={"transformers": "4.46.3"}), PINS, network)


def test_unreachable_torch_index_is_reported(network: Network) -> None:
    all_pins = replace(PINS, profiles={**PINS.profiles, "cpu": replace(CPU, torch_index="http://127.0.0.1:9/none")})
    with pytest.raises(UserError, match=r"Failed to fetch: \S*http://127\.0\.0\.1:9/none/torch/.* have torch 2\.13"):
        complete(ProfileRequest("own", torch="2.6.0"), all_pins, network)


def test_another_torch_becomes_a_hardware_key(network: Network, tmp_path: Path) -> None:
    add_torch(tmp_path / "wheels", "2.6.0+cpu")
    found = complete(ProfileRequest("own", torch="2.6.0", versions={"transformers": "4.46.3"}), PINS, network)
    assert (found.request.torch, found.hardware, found.day) == ("2.6.0+cpu", {"torch": "2.6.0+cpu"}, "2024-12-18")


CUDA_13 = {"cuda-toolkit": "13.0.3", "nvidia-cudnn-cu13": "9.20.0.48", "nvidia-nccl-cu13": "2.29.7", "triton": "3.7.1"}
CUDA_12 = {
    "nvidia-cuda-runtime-cu12": "12.4.127",
    "nvidia-cudnn-cu12": "9.1.0.70",
    "nvidia-nccl-cu12": "2.21.5",
    "triton": "3.2.0",
}


def add_cuda(index: JsonIndex, torch: str, parts: dict[str, str], vision: str) -> None:
    """Adds a torch for CUDA and its dependencies to the index."""
    needs = "".join(f"Requires-Dist: {name}=={version}\n" for name, version in parts.items())
    index.add("torch", torch, needs)
    index.add("torchvision", vision, f"Requires-Dist: torch=={torch}\n")
    for name, version in parts.items():
        index.add(name.replace("-", "_"), version)


def test_another_torch_brings_its_cuda_versions(served: JsonIndex, network: Network) -> None:
    add_cuda(served, "2.6.1", CUDA_12, "0.21.1")
    found = complete(ProfileRequest("own", "cu124", torch="2.6.1", versions={"transformers": "4.46.3"}), PINS, network)
    parts = {"cuda": "12.4", "cudnn": "9.1.0", "nccl": "2.21.5", "triton": "3.2.0"}
    assert found.hardware == {"torch": "2.6.1", **parts, "torchvision": "0.21.1"}


def test_newer_cuda_than_the_origins_drivers_run_is_refused(served: JsonIndex, network: Network) -> None:
    add_cuda(served, "2.13.1", CUDA_13, "0.28.1")
    with pytest.raises(UserError, match=r"CUDA 13\.0\.3, which needs driver 580 .* driver 525 and newer: .* 13\.$"):
        complete(ProfileRequest("own", "cu124", torch="2.13.1"), PINS, network)


def test_torch_built_against_numpy_1_needs_a_constraint(served: JsonIndex, network: Network, tmp_path: Path) -> None:
    add_torch(tmp_path / "wheels", "2.2.2+cpu")
    served.add("numpy", "2.4.0", upload_time="2024-06-17T00:00:00Z")
    served.add("numpy", "1.26.4", upload_time="2024-02-05T00:00:00Z")
    request = ProfileRequest("own", torch="2.2.2", versions={"transformers": "4.46.3"}, packages=["numpy"])
    with pytest.raises(UserError, match=r"numpy would be 2\.4\.0: add --constraint 'numpy<2'"):
        complete(request, PINS, network)
    assert "numpy==1.26.4" in complete(replace(request, constraints=["numpy<2"]), PINS, network).packages


@pytest.mark.parametrize("profile", [each for each in PINS.profiles.values() if each.cuda], ids=lambda each: each.name)
def test_cuda_parts_of_locks_match_pins(profile: pins.Profile) -> None:
    locked = "".join((LOCKS / lock).read_text() for lock in torch_locks(profile))
    assert cuda_parts({name: version for name, version, _ in entries(locked)}) == dict(profile.cuda)
