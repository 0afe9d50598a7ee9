"""EFA or TCP: fake hosts, with plugins that are really loaded (empty shared libraries, compiled here)."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.train.planning import efa
from berth.train.planning.efa import Fabric
from berth.train.planning.hardware import Hardware
from berth.train.planning.plan import Plan
from tests.unit.train.planning.plans import CPU, GPU8, job, plan_of

P4D = Fabric(built=True, plugin="libnccl-net.so", devices=("rdmap16s27", "rdmap32s27"))

Root = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """`root(efa=4, mlx=1, uverbs=True, plugin="libnccl-net.so")`: a file system with these devices and this plugin."""

    def make(efa: int = 0, mlx: int = 0, uverbs: bool = False, plugin: str = "", needs: str = "") -> Path:
        for driver, count in {"efa": efa, "mlx5_core": mlx}.items():
            for number in range(count):
                device = tmp_path / f"sys/class/infiniband/{driver}_{number}/device"
                device.mkdir(parents=True)
                (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
        if uverbs:
            (tmp_path / "dev/infiniband").mkdir(parents=True)
            (tmp_path / "dev/infiniband/uverbs0").touch()
        folder = tmp_path / "opt/amazon/ofi-nccl/lib"
        folder.mkdir(parents=True)
        if needs:
            compile_library(folder / needs)
        if plugin:
            compile_library(folder / plugin, *([f"-L{folder}", f"-l:{needs}", "-Wl,--no-as-needed"] if needs else []))
        if needs:
            (folder / needs).unlink()
        return tmp_path

    return make


def compile_library(path: Path, *options: str) -> None:
    """Compile an empty shared library."""
    source = path.with_name("empty.c")
    source.write_text("int empty;")
    command = ["gcc", "-shared", "-fPIC", *[each for each in options if each.startswith("-W")], str(source), "-o"]
    subprocess.run([*command, str(path), *[each for each in options if not each.startswith("-W")]], check=True)


def environ(root: Path, **variables: str) -> dict[str, str]:
    """The image's variables. The loader searches the plugin's folder first, which also has a libcudart.so."""
    folder = root / "opt/amazon/ofi-nccl/lib"
    compile_library(folder / "libcudart.so")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), **variables}


PLUGIN = "libnccl-net.so"


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"efa": 4, "uverbs": True, "plugin": PLUGIN}, "EFA: 4 devices, plugin libnccl-net.so"),
        ({"efa": 4, "uverbs": True}, "TCP: this image was built without EFA"),
        ({"mlx": 2, "uverbs": True, "plugin": PLUGIN}, "TCP: no EFA device is on this host"),
        (
            {"efa": 4, "plugin": PLUGIN},
            "TCP: this host has 4 EFA devices but this container has none of their /dev/infiniband/uverbs nodes; start "
            "the container with docker run --device /dev/infiniband/uverbs0 --device /dev/infiniband/uverbs1 …",
        ),
        (
            {"efa": 4, "uverbs": True, "plugin": PLUGIN, "needs": "libfabric.so.1"},
            "TCP: the plugin can't be loaded: libfabric.so.1: cannot open shared object file: No such file or "
            "directory",
        ),
    ],
    ids=[
        "all parts",
        "no plugin",
        "InfiniBand of another driver",
        "no device nodes",
        "dependency of the plugin missing",
    ],
)
def test_network_line_names_plugin_or_what_is_missing(root: Root, parts: dict[str, Any], line: str) -> None:
    host = root(**parts)
    fabric = efa.detect(host, environ(host))
    assert {efa.network_line(fabric, backend) for backend in ("nccl", "smddp")} == {f"network: NCCL over {line}"}


def test_nodes_of_other_devices_and_unreadable_nodes_do_not_count(root: Root) -> None:
    host = root(efa=1, uverbs=True, plugin="libnccl-net.so")
    verbs = host / "sys/class/infiniband_verbs/uverbs0"
    verbs.mkdir(parents=True)
    (verbs / "ibdev").write_text("mlx5_0\n")
    assert "none of their /dev/infiniband/uverbs nodes" in efa.detect(host, environ(host)).missing
    (verbs / "ibdev").write_text("efa_0\n")
    assert efa.detect(host, environ(host)).missing == ""
    node = host / "dev/infiniband/uverbs0"
    node.unlink()
    node.symlink_to("nowhere/at-all")
    assert (
        "/dev/infiniband/uverbs0 can't be opened (No such file or directory)" in efa.detect(host, environ(host)).missing
    )


def test_plugin_needs_libcudart(root: Root) -> None:
    host = root(efa=4, uverbs=True, plugin="libnccl-net.so")
    variables = environ(host)
    broken = host / "opt/amazon/ofi-nccl/lib/libcudart.so"
    broken.write_bytes(b"")  # not deleted, because this machine may have another one
    assert efa.network_line(efa.detect(host, variables), "nccl") == (
        f"network: NCCL over TCP: the plugin can't be loaded: {broken}: file too short"
    )


def test_plugin_is_loaded_by_the_name_that_nccl_tries(root: Root) -> None:
    """Debian's package has only libnccl-net-ofi.so, which NCCL loads only if NCCL_NET_PLUGIN is ofi."""
    host = root(efa=1, uverbs=True, plugin="libnccl-net-ofi.so")
    assert "libnccl-net.so: cannot open shared object file" in efa.detect(host, environ(host)).obstacle
    assert efa.detect(host, environ(host, NCCL_NET_PLUGIN="ofi")).plugin == "libnccl-net-ofi.so"
    (host / "etc").mkdir()
    (host / "etc/nccl.conf").write_text("# a comment\nNCCL_NET_PLUGIN=ofi\n")
    assert efa.network_line(efa.detect(host, environ(host)), "nccl") == (
        "network: NCCL over EFA: 1 device, plugin libnccl-net-ofi.so"
    )


def plan(fabric: Fabric, hardware: Hardware = GPU8, hosts: int = 2, **variables: str) -> Plan:
    return plan_of(job(hosts), hardware, variables, fabric=fabric)


@pytest.mark.parametrize(
    ("fabric", "hardware", "hosts", "line"),
    [
        (P4D, GPU8, 2, "network: NCCL over EFA: 2 devices, plugin libnccl-net.so"),
        (
            P4D,
            GPU8,
            1,
            "network: one host needs none; with several, NCCL would use EFA: 2 devices, plugin libnccl-net.so",
        ),
        (Fabric(), GPU8, 2, "network: NCCL over TCP: this image was built without EFA"),
        (Fabric(), GPU8, 1, None),
        (Fabric(), CPU, 2, None),
        (P4D, CPU, 2, "network: gloo over TCP: gloo does not support EFA"),
    ],
)
def test_plan_has_network_line_if_it_matters(fabric: Fabric, hardware: Hardware, hosts: int, line: str | None) -> None:
    lines = [reason for reason in plan(fabric, hardware, hosts).reasons if reason.startswith("network: ")]
    assert lines == ([line] if line else [])


def test_require_efa_sets_nccl_variables() -> None:
    environment = plan(P4D, BERTH_REQUIRE_EFA="1").environment
    assert environment["NCCL_NET_PLUGIN"] == "ofi"
    assert environment["NCCL_NET"] == "AWS Libfabric"
    users = plan(P4D, BERTH_REQUIRE_EFA="1", NCCL_NET_PLUGIN="aws-ofi", NCCL_NET="aws libfabric", FI_PROVIDER="efa,tcp")
    assert users.environment["NCCL_NET_PLUGIN"] == "aws-ofi"
    assert not {"NCCL_NET", "NCCL_NET_PLUGIN"} & set(plan(P4D).environment)


@pytest.mark.parametrize(
    ("fabric", "hardware", "variables", "reason"),
    [
        (Fabric(), GPU8, {}, "this image was built without EFA"),
        (Fabric(built=True, plugin="p"), GPU8, {}, "no EFA device is on this host"),
        (
            Fabric(built=True, obstacle="libcudart.so: cannot open"),
            GPU8,
            {},
            "the plugin can't be loaded: libcudart.so",
        ),
        (P4D, CPU, {}, "the ranks use gloo, which does not support EFA"),
        (P4D, GPU8, {"NCCL_NET": "Socket"}, "NCCL_NET is Socket"),
        (P4D, GPU8, {"FI_PROVIDER": "tcp"}, "FI_PROVIDER is tcp"),
        (P4D, GPU8, {"FI_PROVIDER": "^efa"}, "FI_PROVIDER is ^efa"),
    ],
)
def test_require_efa_refuses_tcp(fabric: Fabric, hardware: Hardware, variables: dict[str, str], reason: str) -> None:
    with pytest.raises(JobError, match="BERTH_REQUIRE_EFA is set but data between hosts would go over TCP") as error:
        plan(fabric, hardware, BERTH_REQUIRE_EFA="1", **variables)
    assert reason in str(error.value)
    assert plan(fabric, hardware, BERTH_REQUIRE_EFA="0", **variables).world_size > 1


def test_require_efa_has_no_effect_on_one_host() -> None:
    alone = plan(Fabric(), hosts=1, BERTH_REQUIRE_EFA="true")
    assert "NCCL_NET" not in alone.environment
