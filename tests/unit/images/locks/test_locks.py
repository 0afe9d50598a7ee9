"""Resolving and writing locks, and checking them against docker/pins.toml."""

import hashlib
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berth.common.errors import UserError
from berth.images.locks import lock_text, locks, uv
from berth.images.locks.lock_check import lock_problem
from berth.images.pins import pins, pins_file
from berth.images.pins.layer_files import HEADER
from tests.doubles.package_index import JsonIndex, json_index, wheel

PINS = pins_file.load()
CPU, HF4 = PINS.profile("cpu"), PINS.profile("cpu-hf4")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonIndex]:
    """The default index of uv."""
    with json_index() as running:
        running.hashed = True
        monkeypatch.setenv("UV_DEFAULT_INDEX", running.url)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
        yield running


@pytest.fixture
def torch_index() -> Iterator[JsonIndex]:
    with json_index() as running:
        running.hashed = True
        yield running


def wheel_in(folder: Path, name: str, version: str, requires: str = "") -> bytes:
    """Writes a wheel into a folder; returns its bytes."""
    folder.mkdir(exist_ok=True)
    content = wheel(name, "", version, f"Requires-Dist: {requires}\n" if requires else "")
    (folder / f"{name}-{version}-py3-none-any.whl").write_bytes(content)
    return content


def versions(request: locks.LockRequest, folder: Path = Path()) -> dict[str, str]:
    """The versions that the lock of a request has, above locks in a folder."""
    text = locks.resolve(request, replace(CPU, torch_index=""), [], folder / "locks")
    return {name: version for name, version, _ in lock_text.entries(text)}


def resolved(*requirements: str, **options: Any) -> dict[str, str]:
    """The versions that a lock of these requirements has."""
    return versions(locks.LockRequest("cpu/deps-train.txt", requirements, **options))


@pytest.mark.slow
@pytest.mark.parametrize("torch_from", ["index", "folder"])
def test_torch_index_provides_only_torch(
    torch_from: str, index: JsonIndex, torch_index: JsonIndex, tmp_path: Path
) -> None:
    numpy = index.files[index.add("numpy", "1.0")]
    index.add("torch", "2.0")
    torch = torch_index.files[torch_index.add("torch", "1.0+cpu", "Requires-Dist: numpy\n")]
    torch_index.add("numpy", "9.9")
    folder = tmp_path / "folder"
    if torch_from == "folder":
        torch = wheel_in(folder, "torch", "1.0+cpu", "numpy<9")
        wheel_in(folder, "numpy", "9.9")
    profile = replace(CPU, torch_index=torch_index.url, packages={**CPU.packages, "torch": "1.0+cpu"})
    request = locks.LockRequest("cpu/pytorch.txt", ("torch==1.0+cpu",))
    text = locks.resolve(request, profile, [tmp_path / "no-such-folder", folder], tmp_path / "locks")
    hashes = [hashlib.sha256(each).hexdigest() for each in (numpy, torch)]
    assert text == (f"numpy==1.0 \\\n    --hash=sha256:{hashes[0]}\ntorch==1.0+cpu \\\n    --hash=sha256:{hashes[1]}\n")


def test_ignored_dependency_is_dropped_with_its_own_dependencies(index: JsonIndex) -> None:
    index.add("joblib", "1.0")
    index.add("learn", "1.0", "Requires-Dist: joblib\n")
    index.add("nncf", "1.0", "Requires-Dist: learn\n")
    assert list(resolved("nncf==1.0")) == ["joblib", "learn", "nncf"]
    assert list(resolved("nncf==1.0", without=("learn",))) == ["nncf"]


def test_releases_without_wheels_are_not_resolved(index: JsonIndex) -> None:
    index.add("joblib", "1.0")
    index.facts["joblib-2.0.tar.gz"] = {}
    index.add("learn", "1.0", "Requires-Dist: joblib\n")
    index.add("learn", "2.0", "Requires-Dist: joblib>=2\n")
    assert resolved("learn") == {"joblib": "1.0", "learn": "1.0"}
    with pytest.raises(uv.NoSolution, match=r"joblib\S* has no usable wheels .*learn\S* depends on joblib"):
        resolved("learn==2.0")


@pytest.mark.parametrize("folder_has", ["both", "torch"])
def test_torchvision_comes_from_the_torch_index(
    folder_has: str, index: JsonIndex, torch_index: JsonIndex, tmp_path: Path
) -> None:
    """A user may add torchvision to profiles.cpu. A folder that lacks its wheel does not replace the index."""
    torch_index.add("torch", "1.0+cpu")
    torch_index.add("torchvision", "1.0+cpu", "Requires-Dist: torch\n")
    wheel_in(tmp_path / "folder", "torch", "1.0+cpu")
    if folder_has == "both":
        wheel_in(tmp_path / "folder", "torchvision", "1.0+cpu", "torch")
    packages = {**CPU.packages, "torch": "1.0+cpu", "torchvision": "1.0+cpu"}
    profile = replace(CPU, torch_index=torch_index.url, packages=packages)
    request = next(each for each in locks.lock_requests(PINS, profile) if each.path == "cpu/deps-train.txt")
    assert "torchvision==1.0+cpu" in request.requirements
    both_torch = locks.LockRequest(request.path, ("torch==1.0+cpu", "torchvision==1.0+cpu"))
    text = locks.resolve(both_torch, profile, [tmp_path / "folder"], tmp_path)
    assert lock_text.locked_names(text) == ["torch", "torchvision"]


def test_overrides_of_pyproject_do_not_apply_to_images(index: JsonIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' overrides in pyproject.toml exclude scikit-learn, but the images have it."""
    index.add("scikit_learn", "1.0")
    monkeypatch.chdir(pins.ROOT)
    assert list(resolved("scikit-learn==1.0")) == ["scikit-learn"]


def test_split_lock_gives_one_text_per_layer() -> None:
    torch, nccl = (f"{name}==1 \\\n    --hash=sha256:aa\n" for name in ("torch", "nvidia-nccl-cu13"))
    assert lock_text.split_lock(torch + nccl) == {"pytorch": torch, "cuda": "", "math": "", "cudnn": "", "nccl": nccl}


def test_write_locks_fills_the_profiles_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(locks, "resolve", lambda *_: f"torch=={CPU.torch} \\\n    --hash=sha256:aa\n")
    written = {str(path.relative_to(tmp_path)) for path in locks.write_locks(PINS, CPU, [], tmp_path)}
    assert written == {locks.BUILD_TOOLS, *(f"cpu/{path.name}" for path in (locks.LOCKS / "cpu").iterdir())}
    written = {str(path.relative_to(tmp_path)) for path in locks.write_locks(PINS, HF4, [], tmp_path)}
    assert written == {f"cpu-hf4/{path.name}" for path in (locks.LOCKS / "cpu-hf4").iterdir()}
    for path in locks.torch_locks(HF4):
        assert (tmp_path / path).read_bytes() == (tmp_path / path.replace("cpu-hf4", "cpu")).read_bytes()
    (tmp_path / "cpu" / "pytorch.txt").write_text("torch==2.6.0+cpu \\\n    --hash=sha256:aa\n")
    with pytest.raises(UserError, match=r"cpu-hf4 shares torch 2\.13\.0\+cpu with cpu, but docker/locks/cpu/pytorch"):
        locks.write_locks(PINS, HF4, [], tmp_path)


def write_lock(path: Path, *packages: str) -> None:
    """Writes a lock of these packages, such as "fsspec==2.0"."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{package} \\\n    --hash=sha256:{'a' * 64}\n" for package in packages))


@pytest.fixture
def above(index: JsonIndex, tmp_path: Path) -> locks.LockRequest:
    """A request of a software set above another profile's torch locks; the index has newer versions of all packages."""
    for name in ("fsspec", "filelock", "certifi", "setuptools", "hub"):
        for version in ("1.0", "2.0", "3.0"):
            index.add(name, version)
    index.add("data", "1.0", "Requires-Dist: fsspec<2\n")
    index.add("data", "2.0", "Requires-Dist: fsspec\n")
    write_lock(tmp_path / "locks" / "cpu" / "pytorch.txt", "fsspec==2.0", "filelock==2.0", "setuptools==2.0")
    write_lock(tmp_path / "locks" / "cpu" / "deps-train.txt", "certifi==2.0", "data==2.0")
    return locks.LockRequest(
        "own/deps-train.txt",
        ("data==1.0", "filelock", "certifi", "hub"),
        below=("cpu/pytorch.txt",),
        above=True,
        preferred=("cpu/openvino.txt", "cpu/deps-train.txt"),
    )


def test_set_repeats_packages_whose_lower_version_does_not_fit(above: locks.LockRequest, tmp_path: Path) -> None:
    """data 1.0 needs an older fsspec, which is locked again; filelock stays in the lower layer; certifi keeps the
    preferred version."""
    assert versions(above, tmp_path) == {"data": "1.0", "fsspec": "1.0", "certifi": "2.0", "hub": "3.0"}
    with pytest.raises(uv.NoSolution, match=r"data\S* depends on fsspec<2 and fsspec==2\.0"):
        locks.resolve(replace(above, above=False), replace(CPU, torch_index=""), [], tmp_path / "locks")


def test_constraint_applies_to_packages_of_layers_below(above: locks.LockRequest, tmp_path: Path) -> None:
    """No package of the set requires setuptools, but its scripts import modules that newer versions lack."""
    bound = replace(above, constraints=("setuptools<2", "hub<3", "filelock<9"))
    assert versions(bound, tmp_path) == {
        "data": "1.0",
        "fsspec": "1.0",
        "certifi": "2.0",
        "hub": "2.0",
        "setuptools": "1.0",
    }
    other = replace(bound, path="own/openmpi.txt", requirements=("hub",))
    assert versions(other, tmp_path) == {"hub": "2.0"}, "only the top layer repeats setuptools"


def test_requests_carry_constraints_and_day_of_the_set() -> None:
    set_ = replace(HF4.software, day="2023-10-01", requirements=("peft==0.5.0",))
    requests = {each.path: each for each in locks.lock_requests(PINS, replace(HF4, software=set_))}
    assert list(requests) == ["cpu-hf4/source-train.txt", "cpu-hf4/openmpi.txt", "cpu-hf4/deps-train.txt"]
    deps = requests["cpu-hf4/deps-train.txt"]
    assert {"peft==0.5.0", "transformers==4.26.0", f"torch=={CPU.torch}"} <= set(deps.requirements)
    assert not any(each.startswith("nncf") for each in deps.requirements)
    assert deps.below == (*locks.torch_locks(HF4), "cpu-hf4/openmpi.txt")
    assert (deps.constraints, deps.day, deps.above) == (set_.constraints, "2023-10-01", True)
    assert {"torch", "transformers", "pip", "mpi4py"} <= set(deps.undated)
    assert deps.preferred == ("cpu/openvino.txt", "cpu/deps-train.txt")


@pytest.mark.slow
def test_uploads_after_the_day_are_ignored(index: JsonIndex, tmp_path: Path) -> None:
    for name in ("fsspec", "pip", "filelock"):
        for version, day in {"1.0": "2023-01-01", "2.0": "2023-06-01", "3.0": "2023-12-01"}.items():
            index.add(name, version, upload_time=f"{day}T00:00:00Z")
    write_lock(tmp_path / "locks" / "cpu" / "pytorch.txt", "filelock==3.0")
    request = locks.LockRequest(
        "own/deps-train.txt",
        ("fsspec", "pip", "filelock"),
        below=("cpu/pytorch.txt",),
        day="2023-07-01",
        undated=("pip", "torch"),
        above=True,
    )
    assert versions(request, tmp_path) == {"fsspec": "2.0", "pip": "3.0"}
    assert versions(replace(request, day="2023-06-01"), tmp_path) == {"fsspec": "2.0", "pip": "3.0"}
    assert versions(replace(request, day=""), tmp_path) == {"fsspec": "3.0", "pip": "3.0"}
    with pytest.raises(uv.NoSolution, match="fsspec"):
        versions(replace(request, day="2022-01-01"), tmp_path)


@pytest.fixture
def own_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of docker/locks; resolving gives its present contents."""
    folder = tmp_path / "locks"
    shutil.copytree(locks.LOCKS, folder)
    monkeypatch.setattr(locks, "LOCKS", folder)
    entries = {path: "".join(each[2] for each in lock_text.entries(path.read_text())) for path in folder.rglob("*.txt")}
    monkeypatch.setattr(locks, "resolve", lambda request, *_: entries[folder / request.path])
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_lock_again_removes_old_locks_and_keeps_users_files(own_locks: Path) -> None:
    before = contents(own_locks)
    (own_locks / "cpu-hf4" / "openvino.txt").write_text(f"{HEADER}of an older row")
    own = {"cpu-hf4/NOTES.md": b"mine", "cpu-hf4/notes/more.md": b"mine, too"}
    for name, content in own.items():
        (own_locks / name).parent.mkdir(exist_ok=True)
        (own_locks / name).write_bytes(content)
    written = locks.lock_again(PINS, [HF4], [])
    assert contents(own_locks) == before | own
    assert own_locks / "cpu-hf4" / "deps-train.txt" in written
    assert all(path.is_file() for path in written)
    assert [each.name for each in own_locks.parent.iterdir()] == ["locks"], "no temporary folder may be left"


@pytest.mark.parametrize("profile", ["cpu", "cpu-hf4"])
def test_sigkill_leaves_each_profiles_locks_old_or_new(
    profile: str, own_locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed just after the folder of `profile` was exchanged."""
    for path in own_locks.glob("*/deps-*.txt"):
        path.write_text(path.read_text() + "# old\n")
    before = contents(own_locks)
    exchange, exchanged = locks.exchange, []

    def exchange_and_kill(one: Path, other: Path) -> None:
        exchange(one, other)
        exchanged.append(other.name)
        if exchanged[-1] == profile:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(locks, "exchange", exchange_and_kill)
    if not (child := os.fork()):
        try:
            locks.lock_again(PINS, [HF4, CPU], [])
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    renewed = {"cpu": ["cpu"], "cpu-hf4": ["cpu", "cpu-hf4"]}[profile]
    for name, content in contents(own_locks).items():
        if name.endswith(("deps-train.txt", "deps-serve.txt")):
            assert content.endswith(b"# old\n") == (name.partition("/")[0] not in renewed), name
        else:
            assert content == before[name], name


OUTDATED = (
    "is outdated, because docker/pins.toml or a lock below it has changed: run `python build.py pins --profile cpu"
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transformers": "4.27.0"}, f"docker/locks/cpu-hf4/deps-train.txt {OUTDATED}-hf4`"),
        ({"nncf": "3.4.0"}, f"docker/locks/cpu-hf4/deps-train.txt {OUTDATED}-hf4`"),
        ({"evaluate": None}, f"docker/locks/cpu-hf4/deps-train.txt {OUTDATED}-hf4`"),
        ({"openvino": "2026.4.1"}, "docker/locks/cpu-hf4/openvino.txt of profile cpu-hf4 is missing: run `python"),
        ({"constraints": ("numpy<2",)}, f"docker/locks/cpu-hf4/source-train.txt {OUTDATED}-hf4`"),
        ({"requirements": ("peft>=0.5",)}, f"docker/locks/cpu-hf4/deps-train.txt {OUTDATED}-hf4`"),
        ({"requirements": ()}, f"docker/locks/cpu-hf4/deps-train.txt {OUTDATED}-hf4`"),
        ({"day": "2024-01-01"}, f"docker/locks/cpu-hf4/source-train.txt {OUTDATED}-hf4`"),
        ({"environment": {"A": "1"}}, "software.json does not match docker/pins.toml: run `python build.py pins --n"),
        ({"debian": ("git",)}, "system.env does not match docker/pins.toml: run `python build.py pins --no-locks`"),
    ],
    ids=str,
)
def test_changed_profile_has_outdated_locks(changes: dict[str, Any], message: str) -> None:
    """A removed package or setting outdates the locks too."""
    assert lock_problem(PINS, HF4, "train", locks.LOCKS) == ""
    set_changes = {name: each for name, each in changes.items() if hasattr(HF4.software, name)}
    packages = {**HF4.packages, **{name: each for name, each in changes.items() if name not in set_changes}}
    packages = {name: version for name, version in packages.items() if version is not None}
    changed_profile = replace(HF4, software=replace(HF4.software, **set_changes), packages=packages)
    assert message in lock_problem(PINS, changed_profile, "train", locks.LOCKS)


def test_torch_locks_must_equal_those_of_the_hardware(tmp_path: Path) -> None:
    cpu = replace(CPU, packages={**CPU.packages, "torch": "2.14.0+cpu"})
    all_pins = replace(PINS, profiles={**PINS.profiles, "cpu": cpu})
    message = lock_problem(all_pins, HF4, "train", locks.LOCKS)
    assert "docker/locks/cpu/pytorch.txt, which profile cpu-hf4 shares, does not match docker/pins.toml" in message
    shutil.copytree(locks.LOCKS, tmp_path / "locks")
    with (tmp_path / "locks" / "cpu-hf4" / "nccl.txt").open("a") as file:
        file.write("# more\n")
    message = lock_problem(PINS, HF4, "train", tmp_path / "locks")
    assert message.startswith(
        "docker/locks/cpu-hf4/nccl.txt differs from that of cpu, but must be identical: run `python"
    )


def test_omitted_part_does_not_outdate_locks() -> None:
    cu130 = PINS.profile("cu130")
    assert lock_problem(PINS, cu130.without(["efa"]), "train", locks.LOCKS) == ""


def test_lock_check_ignores_the_other_image(tmp_path: Path) -> None:
    shutil.copytree(locks.LOCKS, tmp_path / "locks")
    (tmp_path / "locks" / "cpu" / "deps-serve.txt").unlink()
    assert lock_problem(PINS, CPU, "train", tmp_path / "locks") == ""
    assert "docker/locks/cpu/deps-serve.txt of profile cpu is missing: run" in lock_problem(
        PINS, CPU, "serve", tmp_path / "locks"
    )
    shutil.rmtree(tmp_path / "locks" / "cpu-hf4")
    assert lock_problem(PINS, HF4, "train", tmp_path / "locks").startswith(
        "docker/locks has nothing for profile cpu-hf4"
    )
