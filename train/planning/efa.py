"""Whether NCCL's data between hosts goes over EFA or TCP, and why.

EFA needs two parts: the image's NCCL plugin (aws-ofi-nccl), which must load, and devices of the efa driver that this
container may open. NCCL falls back to TCP silently, so each part is tried; neither the instance type nor the existence
of a file is enough. Functions that read files take the root of the file system, so that a test can pass another one.

Source: github.com/aws/aws-ofi-nccl, and docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.contract.words import counted
from berth.runtime.host_files import entries, read_text
from berth.train.planning.mpirun_settings import file_settings
from berth.train.planning.trial import try_loading

PLUGIN_FOLDER = "opt/amazon/ofi-nccl/lib"
# With these variables NCCL fails instead of falling back to TCP.
STRICT = {"NCCL_NET_PLUGIN": "ofi", "NCCL_NET": "AWS Libfabric"}
_PLUGINS = ("libnccl-net.so", "libnccl-net-ofi.so")
_LIMIT_SECONDS = 60
_ROOT = Path("/")
# The plugin opens libcudart.so by that name when it starts, and fails without it.
_LOAD_PLUGIN = """
import ctypes, sys
ctypes.CDLL("libcudart.so")
errors = []
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
        print("plugin:", name)
        sys.exit(0)
    except OSError as error:
        errors.append(error)
raise errors[-1]
"""


@dataclass(frozen=True, slots=True)
class Fabric:
    """The parts of EFA on this host and in this image.

    built: the image contains the plugin. plugin: the file that loads; obstacle: why none does. devices: the host's EFA
    devices. closed: why this container can't open them, empty if it can.
    """

    built: bool = False
    plugin: str = ""
    obstacle: str = ""
    devices: tuple[str, ...] = ()
    closed: str = ""

    @property
    def missing(self) -> str:
        """Why data goes over TCP; empty if EFA works."""
        if not self.built:
            return "this image was built without EFA"
        if self.obstacle:
            return f"the plugin can't be loaded: {self.obstacle}"
        if not self.devices:
            return "no EFA device is on this host"
        if self.closed:
            return (
                f"this host has {counted(len(self.devices), 'EFA device')} but {self.closed}; start the container with "
                "docker run --device /dev/infiniband/uverbs0 --device /dev/infiniband/uverbs1 …"
            )
        return ""


def variable_against_efa(settings: Mapping[str, str]) -> str:
    """The user's variable that keeps NCCL from using EFA even if all parts work; empty if there is none."""
    net, provider = settings.get("NCCL_NET", ""), settings.get("FI_PROVIDER", "")
    if net and net.lower() != STRICT["NCCL_NET"].lower():
        return f"NCCL_NET is {net}"
    excluded = provider.startswith("^")
    if provider and ("efa" in provider.removeprefix("^").split(",")) == excluded:
        return f"FI_PROVIDER is {provider}"
    return ""


def detect(root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> Fabric:
    """Look for EFA devices, and load the plugin in a child process by the names that NCCL would try."""
    infiniband = entries(root / "sys/class/infiniband")
    devices = tuple(sorted(each.name for each in infiniband if (each / "device/driver").resolve().name == "efa"))
    built = any((root / PLUGIN_FOLDER / name).exists() for name in _PLUGINS)
    output = obstacle = ""
    if built:
        output, obstacle = try_loading(_LOAD_PLUGIN, plugin_names(root, environ), environ, _LIMIT_SECONDS)
    plugin = output.rpartition("plugin: ")[2].partition("\n")[0]
    return Fabric(built, plugin, obstacle.removeprefix("OSError: "), devices, _closed(root, devices))


def network_line(fabric: Fabric, backend: str, *, alone: bool = False) -> str:
    """`network: NCCL over EFA: 4 devices, plugin libnccl-net.so`, or TCP and the reason. `alone`: the job has one host.

    SMDDP uses NCCL as well.
    """
    if backend == "gloo":
        return "network: gloo over TCP: gloo does not support EFA"
    devices = counted(len(fabric.devices), "device")
    way = f"TCP: {fabric.missing}" if fabric.missing else f"EFA: {devices}, plugin {fabric.plugin}"
    return f"network: one host needs none; with several, NCCL would use {way}" if alone else f"network: NCCL over {way}"


def plugin_names(root: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The file names that NCCL tries for its network plugin: from NCCL_NET_PLUGIN, in the environment or in
    /etc/nccl.conf, otherwise libnccl-net.so.
    """
    configured = file_settings(root / "etc/nccl.conf").get("NCCL_NET_PLUGIN")
    setting = environ.get("NCCL_NET_PLUGIN") or (configured.value if configured else "")
    names = [name.strip() for name in setting.split(",") if name.strip()]
    return tuple(name if ".so" in name else f"libnccl-net-{name}.so" for name in names) or _PLUGINS[:1]


def _closed(root: Path, devices: Sequence[str]) -> str:
    """Why this container can't open an EFA device node, which libfabric must; empty if it can open all."""
    verbs = {path.name: path / "ibdev" for path in entries(root / "sys/class/infiniband_verbs")}
    nodes = [path for path in entries(root / "dev/infiniband") if path.name.startswith("uverbs")]
    efa_nodes = [path for path in nodes if path.name not in verbs or read_text(verbs[path.name]).strip() in devices]
    if not efa_nodes:
        return "this container has none of their /dev/infiniband/uverbs nodes"
    for path in sorted(efa_nodes):
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError as error:
            return f"/dev/infiniband/{path.name} can't be opened ({error.strerror})"
    return ""
