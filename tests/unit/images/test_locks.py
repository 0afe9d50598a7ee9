"""Which index a lock's packages come from, torch's for torch and for nothing else, and where a lock lies."""

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from berth.images import locks, pins

CPU = pins.load().profile("cpu")


def wheel(folder: Path, name: str, version: str, needs: str = "") -> str:
    """A wheel that holds nothing, and its sha256; the version of torch's CPU build ends in +cpu."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server whose folders are those of tmp_path: INDEX/PACKAGE/ is a page of an index."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("torch_from", ["index", "folder"])
def test_an_index_of_torch_that_offers_a_newer_numpy_is_not_asked_for_it(
    torch_from: str, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = wheel(tmp_path / "public" / "numpy", "numpy", "1.0")
    wheel(tmp_path / "public" / "torch", "torch", "2.0")
    torch = wheel(tmp_path / "torch" / "torch", "torch", "1.0+cpu", needs="numpy")
    wheel(tmp_path / "torch" / "numpy", "numpy", "9.9")
    folder = tmp_path / "folder"
    if torch_from == "folder":
        torch = wheel(folder, "torch", "1.0+cpu", needs="numpy")
        wheel(folder, "numpy", "9.9")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{served}/public")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    profile = replace(CPU, torch_index=f"{served}/torch", packages={**CPU.packages, "torch": "1.0+cpu"})
    request = locks.LockRequest("cpu/pytorch.txt", ("torch==1.0+cpu",))
    text = locks.resolve(request, profile, [tmp_path / "no-such-folder", folder], tmp_path / "locks")
    assert text == (f"numpy==1.0 \\\n    --hash=sha256:{public}\ntorch==1.0+cpu \\\n    --hash=sha256:{torch}\n")


def test_a_requirement_that_is_taken_out_takes_its_own_with_it(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "public" / "joblib", "joblib", "1.0")
    wheel(tmp_path / "public" / "learn", "learn", "1.0", needs="joblib")
    wheel(tmp_path / "public" / "nncf", "nncf", "1.0", needs="learn")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{served}/public")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    profile = replace(CPU, torch_index="")
    request = locks.LockRequest("cpu/deps-train.txt", ("nncf==1.0",))
    assert locks.locked_names(locks.resolve(request, profile, [], tmp_path)) == ["joblib", "learn", "nncf"]
    without = replace(request, without=("learn",))
    assert locks.locked_names(locks.resolve(without, profile, [], tmp_path)) == ["nncf"]


def test_the_index_of_torch_is_named_for_torch_alone() -> None:
    assert locks.torchs_index(CPU, []) == (
        '[[tool.uv.index]]\nname = "torch"\nurl = "https://download.pytorch.org/whl/cpu"\nexplicit = true\n'
        '[tool.uv.sources]\ntorch = { index = "torch" }\n'
    )
    assert locks.torchs_index(replace(CPU, torch_index=""), [pins.ROOT]) == ""


@pytest.mark.parametrize("folder_has", ["both", "torch"])
def test_a_torchvision_for_the_cpu_comes_from_torchs_index(
    folder_has: str, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one line that a user adds to profiles.cpu; a folder without it does not stand for the index."""
    for place in (tmp_path / "torch", tmp_path / "folder"):
        at_index = place.name == "torch"
        wheel(place / "torch" if at_index else place, "torch", "1.0+cpu")
        if at_index or folder_has == "both":
            wheel(place / "torchvision" if at_index else place, "torchvision", "1.0+cpu", needs="torch")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{served}/public")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    packages = {**CPU.packages, "torch": "1.0+cpu", "torchvision": "1.0+cpu"}
    profile = replace(CPU, torch_index=f"{served}/torch", packages=packages)
    request = next(each for each in locks.lock_requests(pins.load(), profile) if each.path == "cpu/deps-train.txt")
    assert "torchvision==1.0+cpu" in request.requirements
    asked = locks.LockRequest(request.path, ("torch==1.0+cpu", "torchvision==1.0+cpu"))
    text = locks.resolve(asked, profile, [tmp_path / "folder"], tmp_path)
    assert locks.locked_names(text) == ["torch", "torchvision"]


def test_the_overrides_of_the_tests_packages_are_not_those_of_an_image(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyproject.toml takes scikit-learn from the tests, which the images have."""
    wheel(tmp_path / "public" / "scikit-learn", "scikit_learn", "1.0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{served}/public")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(pins.ROOT)
    request = locks.LockRequest("cpu/deps-train.txt", ("scikit-learn==1.0",))
    assert locks.locked_names(locks.resolve(request, replace(CPU, torch_index=""), [], tmp_path)) == ["scikit-learn"]


def test_torchs_lock_is_one_a_layer_and_empty_where_a_layer_is() -> None:
    torch, nccl = (f"{name}==1 \\\n    --hash=sha256:aa\n" for name in ("torch", "nvidia-nccl-cu13"))
    assert locks.split_lock(torch + nccl) == {"pytorch": torch, "cuda": "", "math": "", "cudnn": "", "nccl": nccl}


def test_the_locks_of_a_profile_are_written_into_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(locks, "resolve", lambda *_: "")
    written = {str(path.relative_to(tmp_path)) for path in locks.write_locks(pins.load(), CPU, [], tmp_path)}
    assert written == {locks.BUILD_TOOLS, *(f"cpu/{path.name}" for path in (locks.LOCKS / "cpu").iterdir())}
