"""The start hook of every Python in the training image."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from berth.images.pins import pins, pins_file
from berth.images.pins.layer_files import SOFTWARE, layer_files
from berth.runtime.gpu import driver
from berth.train.startup import rank_hook, sdk3_driver, start_hook

CPU = {"ACCELERATE_USE_CPU": "true"}
TORCHRUN = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "algo-1"}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
SDK3 = {"SM_MASTER_ADDR": "algo-1", "SM_MASTER_PORT": "7777"}
RANK = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environ", "gpus", "added"),
    [
        (TORCHRUN, 0, CPU),
        (TORCHRUN, 8, {}),
        (MPIRUN | SDK3, 0, CPU | RANK | {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}),
        (MPIRUN | SDK3, 2, RANK | {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}),
        (MPIRUN, 2, RANK | {"MASTER_PORT": "29500"}),
        (
            MPIRUN | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            2,
            RANK | {"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
        ),
    ],
    ids=["torchrun", "torchrun, GPUs", "v3's mpirun", "v3's mpirun, GPUs", "mpirun alone", "mpirun on one host"],
)
def test_rank_variables(environ: dict[str, str], gpus: int, added: dict[str, str]) -> None:
    assert start_hook.rank_variables(environ, gpus) == added


def test_software_variables_of_every_profile(tmp_path: Path) -> None:
    path = tmp_path / "software.json"
    assert start_hook.software_variables(str(path)) == {}, "no file outside an image"
    for name, profile in pins_file.load().profiles.items():
        path.write_text(layer_files(profile)[SOFTWARE])
        assert start_hook.software_variables(str(path)) == profile.software.environment, name


def test_software_variables_import_json_only_if_needed(tmp_path: Path) -> None:
    path = tmp_path / "software.json"
    program = (
        "import sys; before = {*sys.modules}\nfrom berth.train.startup import start_hook\n"
        f"start_hook.software_variables({str(path)!r}); print('json' in {{*sys.modules}} - before)"
    )
    for profile, loaded in {"cpu": "False", "cpu-hf4": "True"}.items():
        path.write_text(layer_files(pins_file.load().profile(profile))[SOFTWARE])
        command = [sys.executable, "-S", "-c", program]
        environ = {"PYTHONPATH": str(pins.ROOT)}
        assert subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip() == loaded


def test_variables_of_job_override_software_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_hook, "software_variables", lambda: {"A": "of the set", "B": "of the set"})
    environ = {"A": "of the job"}
    start_hook.start(environ)
    assert environ == {"A": "of the job", "B": "of the set"}


ETHWE = {"SM_NETWORK_INTERFACE_NAME": "ethwe"}


@pytest.mark.parametrize(
    ("environ", "added"),
    [
        ({}, {}),
        (ETHWE, {}),
        (ETHWE | {"NCCL_SOCKET_IFNAME": "ethwe"}, {"NCCL_SOCKET_IFNAME": "eth0"}),
        (ETHWE | {"NCCL_SOCKET_IFNAME": "eth"}, {}),
        (ETHWE | TORCHRUN, {"GLOO_SOCKET_IFNAME": "eth0"}),
        (ETHWE | TORCHRUN | {"GLOO_SOCKET_IFNAME": "lo"}, {}),
        ({"SM_NETWORK_INTERFACE_NAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}, {}),
        ({"SM_NETWORK_INTERFACE_NAME": "eth1"} | TORCHRUN, {"GLOO_SOCKET_IFNAME": "eth1"}),
        (TORCHRUN, {}),
    ],
)
def test_interface_variables_name_existing_interface(
    environ: dict[str, str], added: dict[str, str], tmp_path: Path
) -> None:
    for name in ("eth0", "eth1", "lo"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    assert start_hook.interface_variables(environ, str(tmp_path)) == added


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({}, 1),
        ({"WORLD_SIZE": ""}, 1),
        ({"WORLD_SIZE": "1"}, 1),
        ({"WORLD_SIZE": "two"}, 1),
        (TORCHRUN, 2),
        (MPIRUN, 4),
    ],
)
def test_variables_are_set_only_for_several_ranks(environ: dict[str, str], size: int) -> None:
    assert start_hook.world_size(environ) == size
    changed = dict(environ)
    start_hook.start(changed)
    assert (changed != environ) == (size > 1)


def test_existing_variables_are_kept() -> None:
    environ = MPIRUN | {"ACCELERATE_USE_CPU": "false", "MASTER_PORT": "1", "RANK": "0"}
    start_hook.start(environ)
    assert environ["ACCELERATE_USE_CPU"] == "false"
    assert (environ["MASTER_PORT"], environ["RANK"], environ["WORLD_SIZE"]) == ("1", "0", "4")


@pytest.mark.parametrize(("cuda", "gpus", "usable"), [("13.0", 8, 8), ("13.0", 0, 0), (None, 8, 0)])
def test_gpus_are_ignored_by_cpu_build_of_torch(
    cuda: str | None, gpus: int, usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "torch_cuda", lambda: cuda)
    monkeypatch.setattr(driver, "count_gpus", lambda root, environ: gpus)
    environ = dict(TORCHRUN)
    start_hook.start(environ)
    assert ("ACCELERATE_USE_CPU" in environ) == (not usable)


@pytest.mark.parametrize(
    ("environ", "caller", "watched"),
    [
        (SDK3, "basic_script_driver.py", True),
        (SDK3, "mpi_driver.py", False),
        ({}, "basic_script_driver.py", False),
        (SDK3 | TORCHRUN, "basic_script_driver.py", False),
    ],
    ids=["script driver of SDK v3", "MPI driver of SDK v3", "our entry", "rank"],
)
def test_only_single_script_of_sdk3_is_watched(
    environ: dict[str, str], caller: str, watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_gpus: list[int] = []
    monkeypatch.setattr(driver, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr(driver, "count_gpus", lambda root, environ: 8)
    monkeypatch.setattr(sdk3_driver, "called_by_driver", lambda name: name == caller)
    monkeypatch.setattr(rank_hook, "watch", lambda environ, size: None)
    monkeypatch.setattr(rank_hook, "watch_script", lambda environ, gpus: watched_gpus.append(gpus))
    start_hook.start(dict(environ))
    assert watched_gpus == ([8] if watched else [])


def python(code: str, site: Path, *, environ: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python that has the folder of the .pth file as a site folder."""
    text = f"import site, sys; seen = set(sys.modules); site.addsitedir({str(site)!r}); {code}"
    environment = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "berth_start.pth").write_text((pins.ROOT / "train/startup/berth_start.pth").read_text())
    return folder


def test_pth_file_runs_start_hook(site: Path) -> None:
    code = "import os; print(os.environ.get('ACCELERATE_USE_CPU'))"
    assert python(code, site).stdout == "None\n"
    assert python(code, site, environ=TORCHRUN).stdout == "true\n"
    result = python(code, site, environ=TORCHRUN | {"OMPI_COMM_WORLD_RANK": "x", "WORLD_SIZE": "2"})
    assert (result.stdout, result.stderr) == ("true\n", "")


def test_start_hook_imports_few_modules(site: Path) -> None:
    result = python("print(*sorted(set(sys.modules) - seen))", site)
    assert result.stdout.split() == [
        "berth",
        "berth.train",
        "berth.train.startup",
        "berth.train.startup.after_import",
        "berth.train.startup.smdistributed_finder",
        "berth.train.startup.start_hook",
    ]


def test_own_package_named_berth_is_no_error(site: Path, tmp_path: Path) -> None:
    (tmp_path / "berth").mkdir()
    (tmp_path / "berth/__init__.py").write_text("")
    result = python("print('on')", site, environ=TORCHRUN | {"PYTHONPATH": str(tmp_path)})
    assert (result.stdout, result.stderr) == ("on\n", "")


@pytest.mark.slow
def test_python_with_torch_waits_for_gloo_at_exit() -> None:
    code = """
from berth.smdistributed import gloo_threads
from berth.train.startup import start_hook
gloo_threads.wait = lambda: print("at rest")
start_hook.start({})
import torch.distributed
print("done")
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout == "done\nat rest\n"
