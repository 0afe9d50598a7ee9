"""Whether an image's torch can run on the detected driver and GPUs: None, or one sentence with what fits. Pure.

berth/contract/gpu_hosts.py has the driver and GPUs that each CUDA needs; a push reads it as well.
"""

from dataclasses import dataclass

from berth.contract import gpu_hosts
from berth.contract.gpu_hosts import DRIVERS, PROFILES, Version, architectures, dotted, minimum, parse, suits
from berth.runtime.gpu.driver import Device, DriverState

_HINTS = {
    34: "the stub of a CUDA toolkit is found before the driver's own library: take its folder out of LD_LIBRARY_PATH",
    100: "the container has no GPU that it may use: start it with docker run --gpus all, and look at "
    "CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES",
    304: "the container may not use the devices: start it with docker run --gpus all instead of --device",
    802: "GPUs joined by NVSwitch wait for the fabric manager: start nvidia-fabricmanager, in the driver's version, on "
    "the host",
    803: "the driver's library and its kernel module have different versions: restart the host, whose driver changed",
    804: "cuda-compat does not support this GPU: take its folder out of LD_LIBRARY_PATH",
    999: "load nvidia-uvm on the host (nvidia-modprobe -u -c 0), look at nvidia-smi and dmesg there, or restart it",
}


@dataclass(frozen=True, slots=True)
class UsableGpus:
    """How many GPUs to use. refusal: an error that prevents the start. line: for the log."""

    gpus: int
    refusal: str | None = None
    line: str = ""


def too_old(cuda: str, state: DriverState) -> bool:
    """Whether the driver is too old for this CUDA; only then can cuda-compat help."""
    return state.version is not None and state.version < minimum(parse(cuda))


def incompatibility(cuda: str | None, gpus: int, state: DriverState, compat: DriverState | None = None) -> str | None:
    """The error if torch for `cuda` (None: a CPU build) can't run on a host with `gpus` device nodes; or None.

    compat: the state with cuda-compat, if it was tried and did not help.
    """
    if cuda is None or gpus == 0:
        return None
    here = "The host's GPUs are in this container"
    if state.missing:
        return (
            f"{here} but the driver's library is not ({state.missing}): start the container through NVIDIA's runtime, "
            "docker run --gpus all, instead of passing only the devices."
        )
    if state.fault:
        return f"{here} but the driver's library {state.fault}: look at nvidia-smi on the host, or restart the host."
    wanted = parse(cuda)
    unsuitable = next((device for device in state.devices if not suits(wanted, device.capability)), None)
    if unsuitable is not None:
        return f"{_capability(wanted, unsuitable)}: {_remedy(wanted, state, compat)}."
    if too_old(cuda, state):
        return f"{_driver(wanted, state, compat)}: {_remedy(wanted, state, compat)}."
    if state.code:
        name = state.name or f"CUDA error {state.code}"
        closed = f" ({state.closed[0]})" if state.closed else ""
        hint = _HINTS.get(state.code, "look at nvidia-smi and dmesg on the host")
        return f"{here} but the driver refuses them with {name} ({state.code}){closed}: {hint}."
    return None


def usable_gpus(nodes: int, state: DriverState, visible: str | None, *, every: bool = True) -> UsableGpus:
    """How many of `nodes` GPUs to use if there is no incompatibility: those that the driver offers.

    Fewer than `nodes` are expected with MIG, or if `visible` (CUDA_VISIBLE_DEVICES) selects some. Otherwise a GPU is
    lost, which is an error if the program needs `every` one.
    """
    offered = len(state.devices)
    chosen = bool(visible and visible.strip())
    if offered >= nodes:
        return UsableGpus(offered)
    if any("MIG" in device.name for device in state.devices):
        reason = "MIG: a process can use one instance"
    elif chosen:
        reason = f"CUDA_VISIBLE_DEVICES is {visible}"
    else:
        reason = ""
    if not offered or (every and not reason):
        place = "CUDA_VISIBLE_DEVICES" if chosen else "nvidia-smi and dmesg on the host"
        count = f"{offered} of the {nodes} GPUs" if offered else "none of the GPUs"
        return UsableGpus(
            offered, f"The driver offers {count} in this container: look at {place}, or use another host."
        )
    reason = reason or "look at nvidia-smi and dmesg on the host"
    return UsableGpus(offered, line=f"the driver offers {offered} of {nodes} GPUs here ({reason})")


def no_gpu(cuda: str, nodes: int, visible: str | None) -> str:
    """The log line if no GPU is used. nodes: the host's GPUs, which `visible` (CUDA_VISIBLE_DEVICES) may hide."""
    hint = "docker run --gpus all passes GPUs in"
    if nodes and visible is not None:
        hint = f"CUDA_VISIBLE_DEVICES is '{visible}', which hides the {nodes} here: unset it to use them"
    return f"no GPU is usable: torch for CUDA {cuda} runs on the CPU ({hint})"


def _capability(wanted: Version, device: Device) -> str:
    least, most = architectures(wanted)
    bound = f"{dotted(least)} or newer" if device.capability < least or most is None else f"{dotted(most)} or older"
    return (
        f"{device.name} has compute capability {dotted(device.capability)} but this image's torch, built for CUDA "
        f"{dotted(wanted)}, needs {bound}"
    )


def _driver(wanted: Version, state: DriverState, compat: DriverState | None) -> str:
    assert state.version is not None
    branch = DRIVERS.get(state.version)
    says = (
        f"This image's torch is built for CUDA {dotted(wanted)}, which needs {_driver_for(wanted)} or newer, but the "
        f"host's driver{f' {branch}' if branch else ''} ends at CUDA {dotted(state.version)}"
    )
    if compat is None:
        return says
    return f"{says} and cuda-compat did not help ({compat.missing or compat.fault or compat.name or 'it is too old'})"


def _driver_for(cuda: Version) -> str:
    needed = gpu_hosts.needed_driver(cuda)
    return f"driver {needed}" if needed else f"a driver for CUDA {dotted(minimum(cuda))}"


def _host_for(cuda: Version) -> str:
    endpoint, transform = gpu_hosts.endpoint_ami(cuda), gpu_hosts.transform_ami(cuda)
    ways = [f"an endpoint: InferenceAmiVersion {endpoint}"] if endpoint else []
    ways += [f"a batch transform: TransformAmiVersion {transform}"] if transform else []
    amis = f" ({'; '.join(ways)})" if ways else ""
    return f"a host with {_driver_for(cuda)}{amis}"


def _remedy(wanted: Version, state: DriverState, compat: DriverState | None) -> str:
    """An image that runs here, or else hosts and images that would work."""
    fitting = {
        name: cuda for name, cuda in PROFILES.items() if all(suits(cuda, device.capability) for device in state.devices)
    }
    version = state.version or (0, 0)
    ready = next((name for name, cuda in fitting.items() if cuda != wanted and version >= minimum(cuda)), None)
    same = all(suits(wanted, device.capability) for device in state.devices)
    ways = [f"use an image of profile {ready}"] if ready else []
    if same:
        ways.append(f"{'' if ready else 'use '}{_host_for(wanted)}")
    if not ready:
        ways += [
            f"{'' if same else 'use '}{_host_for(cuda)} and an image of profile {name}"
            for name, cuda in fitting.items()
            if minimum(cuda) < minimum(wanted) or not same
        ]
        if same and compat is None:
            ways.append("build the image with cuda-compat")
    return ", or ".join(ways) or "use a host with a newer GPU"
