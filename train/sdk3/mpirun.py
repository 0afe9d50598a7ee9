"""The hook `mpirun`: corrects the command line of SDK v3's MPI driver, and passes all other calls on unchanged.

The driver's own line does not work: its -np counts one host's ranks, in local mode it names an interface that no
container has, and Open MPI binds each of two ranks to one core. The rest, including the user's options, is kept. RANK
and the like are set by berth.train.startup.start_hook.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from berth.runtime.cpus import count_cpus
from berth.runtime.dispatch import NOT_FOUND
from berth.runtime.interfaces import choose_interface, network_interfaces
from berth.train.hosts.log import get_logger
from berth.train.planning.mpirun_settings import user_settings
from berth.train.startup.sdk3_driver import called_by_driver, without_hooks

_RUNNER = ("-m", "mpi4py")
_PARAMETER_OPTIONS = ("-mca", "--mca")
_BINDING = "OMPI_MCA_hwloc_base_binding_policy"


def correct(
    arguments: Sequence[str], *, prefix: str, configured: str, interface: str, cpus: int, environ: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Correct the driver's arguments; returns them, and a description of each change.

    A line without the driver's own parts, perhaps of a newer SDK, is kept. prefix: Open MPI's folder, for the daemons
    on other hosts. configured: the interface in the job's configuration. interface: the one to use instead. environ:
    contains the user's settings.
    """
    start = next((at - 1 for at, pair in enumerate(pairwise(arguments)) if pair == _RUNNER), -1)
    options, program = list(arguments[: max(0, start)]), arguments[max(0, start) :]
    if start < 0 or "--host" not in options or "-np" not in options:
        return list(arguments), []
    changes = []
    slots = [int(item.partition(":")[2] or 1) for item in options[options.index("--host") + 1].split(",")]
    np, ranks = options.index("-np") + 1, str(sum(slots))
    if options[np] != ranks:
        changes.append(f"-np {ranks} instead of {options[np]}, the ranks of all hosts")
        options[np] = ranks
    replaced = _with_interface(options, configured, interface)
    if replaced != options:
        changes.append(f"the interface {interface} instead of {configured}, which this host does not have")
    options, dropped = _without_contradictions(replaced, environ)
    changes += dropped
    threads = f"OMP_NUM_THREADS={max(1, cpus // max(slots))}"
    exported = [value.partition("=")[0] for option, value in pairwise(options) if option == "-x"]
    if "OMP_NUM_THREADS" not in exported and not environ.get("OMP_NUM_THREADS"):
        changes.append(threads)
        options += ["-x", threads]
    if "--prefix" not in options:
        options = ["--prefix", prefix, *options]
    return [*options, *program], changes


def _with_interface(options: Sequence[str], configured: str, interface: str) -> list[str]:
    """The options with `interface` instead of `configured`. Other interfaces are the user's own and are kept."""
    ours = list(options)
    for at in range(2, len(options)):
        option, name, value = options[at - 2 : at + 1]
        if option in _PARAMETER_OPTIONS and name.endswith("_if_include") and value == configured:
            ours[at] = interface
        elif name == "-x" and value == f"NCCL_SOCKET_IFNAME={configured}":
            ours[at] = f"NCCL_SOCKET_IFNAME={interface}"
    return ours


def _without_contradictions(options: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Drop the driver's lists of interfaces whose opposite the user has set: with both, mpirun would hang or fail.

    Returns the options, and a description of each dropped one.
    """
    theirs = user_settings(options, environ)
    kept, dropped = list(options), []
    for option, name in pairwise(options):
        opposite = name.replace("_if_include", "_if_exclude")
        if option in _PARAMETER_OPTIONS and name.endswith("_if_include") and opposite in theirs:
            at = kept.index(name)
            del kept[at - 1 : at + 2]
            dropped.append(f"no {name}, because {opposite} is set")
    return kept, dropped


def main() -> None:
    """Correct the arguments if the driver is the caller, and become the real mpirun."""
    arguments = sys.argv[1:]
    real = shutil.which("mpirun", path=without_hooks(os.environ.get("PATH", "")))
    if real is None:
        get_logger().error("mpirun is not on PATH; install Open MPI in the image (the kit's image has it).")
        sys.exit(NOT_FOUND)
    if not called_by_driver():
        os.execv(real, ["mpirun", *arguments])
    configured = os.environ.get("SM_NETWORK_INTERFACE_NAME", "")
    interface = choose_interface(configured, network_interfaces(), alone=False)
    prefix = str(Path(real).parent.parent)
    arguments, changes = correct(
        arguments, prefix=prefix, configured=configured, interface=interface, cpus=count_cpus(), environ=os.environ
    )
    if _BINDING not in os.environ:
        # As a variable, because the user's --bind-to overrides it. Open MPI would bind each of two ranks to one core.
        os.environ[_BINDING] = "none"
        changes.append("ranks not bound to cores unless --bind-to is given")
    if changes:
        get_logger().info("mpirun: changed for SDK v3's driver: %s", "; ".join(changes))
    os.execv(real, ["mpirun", *arguments])
