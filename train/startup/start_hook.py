"""Runs at the start of every Python of the training image: `berth_start.pth` in its site-packages calls `start`.

It also reaches programs that our launcher does not start: SDK v3's ModelTrainer replaces the image's entrypoint, and
its drivers run torchrun, mpirun or Python themselves. A module is imported only when its hook is needed, to keep the
start fast. `start` never raises, and prints only the warnings of berth.train.startup.rank_hook.
"""

import os

SOFTWARE = "/opt/berth/software.json"
"""As in berth.runtime.software, which is not imported here: its dataclasses would cost each Python several ms."""
_ENDS_FOLDER = "BERTH_PYTHON_ENDS"
"""As in berth.train.startup.python_end, which only a Python of a rank imports."""
_CPU, _PARTITIONED, _METRICS = (
    "berth.train.startup.cpu_trainer",
    "berth.train.startup.partitioned_trainer",
    "berth.train.startup.metrics.loading",
)
_AFTER_IMPORT = (
    ("evaluate.loading", _METRICS, "after_evaluate"),
    ("datasets", _METRICS, "after_datasets"),
    ("datasets.features.features", "berth.train.startup.older_datasets", "after_features"),
    ("torch.distributed.distributed_c10d", "berth.smdistributed.gloo_threads", "wait_at_exit"),
    ("transformers.training_args", _CPU, "after_training_arguments"),
    ("transformers.training_args", _PARTITIONED, "after_training_arguments"),
    ("transformers.trainer", _CPU, "after_trainer"),
    ("transformers.trainer", _PARTITIONED, "after_trainer"),
)
"""Library module, and our module and function that is called with it after its import."""
TYPE_CHECKING = False  # typing's own would cost each Python of the image 4 ms
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping


def start(environ: "MutableMapping[str, str]" = os.environ) -> None:
    """Install the hooks and set the variables that this process needs. `environ`: its environment."""
    try:
        for name, value in software_variables().items():
            environ.setdefault(name, value)
        from berth.train.startup import after_import, smdistributed_finder

        if _ENDS_FOLDER in environ:
            from berth.train.startup import python_end

            python_end.install(environ)
        smdistributed_finder.install(environ)
        for library, ours, function in _AFTER_IMPORT:
            after_import.register(library, f"{ours}:{function}")
        if "SM_HP_MP_PARAMETERS" in environ:
            after_import.register("transformers.utils.import_utils", f"{_PARTITIONED}:after_import_utils")
        environ.update(interface_variables(environ))
        if world_size(environ) > 1:
            for name, value in rank_variables(environ, _usable_gpus(environ)).items():
                environ.setdefault(name, value)
            from berth.train.startup import rank_hook

            rank_hook.watch(environ, world_size(environ))
        elif "SM_MASTER_ADDR" in environ:  # set only by SDK v3's drivers
            _watch_script(environ)
    except Exception:
        return  # the program must start even if a hook fails


def _watch_script(environ: "MutableMapping[str, str]") -> None:
    from berth.train.startup import sdk3_driver

    if sdk3_driver.called_by_driver(name=sdk3_driver.SCRIPT_DRIVER):
        from berth.train.startup import rank_hook

        rank_hook.watch_script(environ, _usable_gpus(environ))


def software_variables(path: str = SOFTWARE) -> "dict[str, str]":
    """The environment variables of the image's software set; empty outside an image."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return {}
    if '"environment": {}' in text:  # the usual case: avoids the import of json, the slowest part
        return {}
    import json

    variables: dict[str, str] = json.loads(text)["environment"]
    return variables


def world_size(environ: "Mapping[str, str]") -> int:
    """The number of ranks, from torchrun's or mpirun's variable; 1 if neither started this process."""
    text = environ.get("WORLD_SIZE") or environ.get("OMPI_COMM_WORLD_SIZE") or ""
    return int(text) if text.isdigit() else 1


def interface_variables(environ: "Mapping[str, str]", root: str = "/") -> "dict[str, str]":
    """The variables for the network interface of NCCL and gloo, in a job of SDK v3 that names one.

    In local mode its drivers set NCCL's variable to `ethwe`, which no container has, and they never set gloo's. `root`:
    of the file system.
    """
    configured = environ.get("SM_NETWORK_INTERFACE_NAME")
    nccl, several = environ.get("NCCL_SOCKET_IFNAME"), world_size(environ) > 1
    if not configured or not (nccl == configured or several):
        return {}
    from pathlib import Path

    from berth.runtime.interfaces import choose_interface, network_interfaces

    interface = choose_interface(configured, network_interfaces(Path(root)), alone=False)
    variables = {"NCCL_SOCKET_IFNAME": interface} if nccl == configured != interface else {}
    if several and not environ.get("GLOO_SOCKET_IFNAME"):
        variables["GLOO_SOCKET_IFNAME"] = interface
    return variables


def rank_variables(environ: "Mapping[str, str]", gpus: int) -> "dict[str, str]":
    """The variables that programs with torch or accelerate need to train together; set only if they are missing. Our
    launcher already sets them for its ranks (berth.train.launching.environment).

    gpus: the GPUs of this host that torch can use.
    """
    from berth.runtime.rank import MASTER_PORT, Rank

    variables = {}
    if not gpus:
        # Without it accelerate, and so transformers' Trainer, starts no process group on a CPU.
        variables["ACCELERATE_USE_CPU"] = "true"
    rank = Rank.from_mpirun(environ)
    if rank is not None:
        variables |= rank.variables()
        # SDK v3's MPI driver sets only its own SM_ variables for the leader.
        variables["MASTER_PORT"] = environ.get("SM_MASTER_PORT") or str(MASTER_PORT)
        if leader := "127.0.0.1" if rank.local_world_size == rank.world_size else environ.get("SM_MASTER_ADDR"):
            variables["MASTER_ADDR"] = leader
    return variables


def _usable_gpus(environ: "Mapping[str, str]") -> int:
    from pathlib import Path

    from berth.runtime.gpu.driver import count_gpus, torch_cuda

    return count_gpus(Path("/"), environ) if torch_cuda() else 0
