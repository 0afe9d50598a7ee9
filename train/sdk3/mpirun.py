"""The hook `mpirun`: SDK v3's MPI driver gets the job that it means, everybody else the real mpirun, as it was called.

The driver's own line can't work: its -np counts one host's ranks, in local mode it names an interface that no container
has, and Open MPI gives each of two ranks one core. What is right, and what the user added, stays. RANK and the like
come from berth.train.startup.start_hook.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class DriverCall:
    """Arguments for mpirun, and in words what of the driver's was changed."""

    arguments: tuple[str, ...]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the driver does not look at on its host. `prefix` is Open MPI's folder, for the daemons of far hosts; where
    the job names the interface `named`, it has to be `interface`. `environ` has what the user has set.
    """

    prefix: str
    named: str
    interface: str
    cpus: int
    environ: Mapping[str, str]


def correct(arguments: Sequence[str], host: HostFacts) -> DriverCall:
    """The driver's arguments as they must be.

    A line without the driver's own parts, of a newer SDK perhaps, stays as it is.
    """
    start = next((at - 1 for at, pair in enumerate(pairwise(arguments)) if pair == _RUNNER), -1)
    given, program = list(arguments[: max(0, start)]), arguments[max(0, start) :]
    if start < 0 or "--host" not in given or "-np" not in given:
        return DriverCall(tuple(arguments))
    changes = []
    slots = [int(each.partition(":")[2] or 1) for each in given[given.index("--host") + 1].split(",")]
    np, ranks = given.index("-np") + 1, str(sum(slots))
    if given[np] != ranks:
        changes.append(f"-np {ranks} in place of {given[np]}, for all hosts are meant")
        given[np] = ranks
    options = _with_interface(given, host.named, host.interface)
    if options != given:
        changes.append(f"the interface {host.interface} in place of {host.named}, which is not here")
    options, left_out = _without_contradictions(options, host.environ)
    changes += left_out
    threads = f"OMP_NUM_THREADS={max(1, host.cpus // max(slots))}"
    exported = [value.partition("=")[0] for option, value in pairwise(options) if option == "-x"]
    if "OMP_NUM_THREADS" not in exported and not host.environ.get("OMP_NUM_THREADS"):
        changes.append(threads)
        options += ["-x", threads]
    if "--prefix" not in options:
        options = ["--prefix", host.prefix, *options]
    return DriverCall((*options, *program), tuple(changes))


def _with_interface(options: Sequence[str], named: str, interface: str) -> list[str]:
    """Options whose interface is `interface` wherever it was `named`; other names are the user's own."""
    ours = list(options)
    for at in range(2, len(options)):
        option, name, value = options[at - 2 : at + 1]
        if option in _PARAMETER_OPTIONS and name.endswith("_if_include") and value == named:
            ours[at] = interface
        elif name == "-x" and value == f"NCCL_SOCKET_IFNAME={named}":
            ours[at] = f"NCCL_SOCKET_IFNAME={interface}"
    return ours


def _without_contradictions(options: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Options without the driver's lists of interfaces that the user has set the opposite of, with which mpirun would
    hang or end; and what is left out.
    """
    theirs = user_settings(options, environ)
    kept, left_out = list(options), []
    for option, name in pairwise(options):
        opposite = name.replace("_if_include", "_if_exclude")
        if option in _PARAMETER_OPTIONS and name.endswith("_if_include") and opposite in theirs:
            at = kept.index(name)
            del kept[at - 1 : at + 2]
            left_out.append(f"no {name}, for {opposite} is set")
    return kept, left_out


def main() -> None:
    """Become the real mpirun."""
    arguments = sys.argv[1:]
    real = shutil.which("mpirun", path=without_hooks(os.environ.get("PATH", "")))
    if real is None:
        get_logger().error("mpirun is not on PATH; install Open MPI in the image (the kit's image has it).")
        sys.exit(NOT_FOUND)
    if not called_by_driver():
        os.execv(real, ["mpirun", *arguments])
    named = os.environ.get("SM_NETWORK_INTERFACE_NAME", "")
    interface = choose_interface(named, network_interfaces(), alone=False)
    host = HostFacts(str(Path(real).parent.parent), named, interface, count_cpus(), os.environ)
    call = correct(arguments, host)
    if _BINDING not in os.environ:
        # As a variable, for a --bind-to of the user's goes before it. Else one rank of two may use one core.
        os.environ[_BINDING] = "none"
        call = DriverCall(call.arguments, (*call.changes, "ranks bound to no core, unless --bind-to says so"))
    if call.changes:
        get_logger().info("mpirun: changed for SDK v3's driver: %s", "; ".join(call.changes))
    os.execv(real, ["mpirun", *call.arguments])
