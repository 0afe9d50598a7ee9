"""Runs at the start of every Python of the training image: `berth_start.pth` in its site-packages calls `start`.

It is there for programs that our entry does not start: SDK v3's ModelTrainer replaces the image's entrypoint, and its
drivers run torchrun, mpirun or Python themselves. Before it has decided that there is something to do it imports
nothing; it never raises, and prints nothing but what berth.train.startup.rank_hook has to say under those drivers.
"""

import os

SOFTWARE = "/opt/berth/software.json"
"""Of berth.runtime.software, which is not loaded here: a dataclass alone would cost each Python several ms."""
_ENDS_FOLDER = "BERTH_PYTHON_ENDS"
"""Of berth.train.startup.python_end, which only a Python of a rank loads."""
_CPU, _PARTITIONED, _METRICS = (
    "berth.train.startup.cpu_trainer",
    "berth.train.startup.partitioned_trainer",
    "berth.train.startup.metrics.loading",
)
_AFTER_IMPORT = (
    ("evaluate.loading", _METRICS, "after_evaluate"),
    ("datasets", _METRICS, "after_datasets"),
    ("datasets.features.features", "berth.train.startup.older_datasets", "after_features"),
    ("torch.distributed.distributed_c10d", "berth.train.startup.gloo_threads", "after_import"),
    ("transformers.training_args", _CPU, "after_training_arguments"),
    ("transformers.training_args", _PARTITIONED, "after_training_arguments"),
    ("transformers.trainer", _CPU, "after_trainer"),
    ("transformers.trainer", _PARTITIONED, "after_trainer"),
)
"""After the import of a library's module: the module and the function of ours that is called with it."""
TYPE_CHECKING = False  # typing's own would cost each Python of the image 4 ms
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping


def start(environ: "MutableMapping[str, str]" = os.environ) -> None:
    """Do what is to be done in this process, whose environment is `environ`."""
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
        elif "SM_MASTER_ADDR" in environ:  # which only SDK v3's drivers set
            _watch_script(environ)
    except Exception:
        return  # a program must start without this, too


def _watch_script(environ: "MutableMapping[str, str]") -> None:
    from berth.train.startup import sdk3_driver

    if sdk3_driver.called_by_driver(name=sdk3_driver.SCRIPT_DRIVER):
        from berth.train.startup import rank_hook

        rank_hook.watch_script(environ, _usable_gpus(environ))


def software_variables(path: str = SOFTWARE) -> "dict[str, str]":
    """The environment of the image's software set; nothing outside of an image."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return {}
    if '"environment": {}' in text:  # as most have it, for json's import takes longer than all else here
        return {}
    import json

    found: dict[str, str] = json.loads(text)["environment"]
    return found


def world_size(environ: "Mapping[str, str]") -> int:
    """The ranks that this process is one of, as torchrun or mpirun says; 1 for a process by itself."""
    text = environ.get("WORLD_SIZE") or environ.get("OMPI_COMM_WORLD_SIZE") or ""
    return int(text) if text.isdigit() else 1


def interface_variables(environ: "Mapping[str, str]", root: str = "/") -> "dict[str, str]":
    """Over which network interface libraries meet, where a job of SDK v3 names one: in local mode its drivers tell NCCL
    of `ethwe`, which no container has, and they tell gloo of none. `root` is that of the file system.
    """
    named = environ.get("SM_NETWORK_INTERFACE_NAME")
    nccl, several = environ.get("NCCL_SOCKET_IFNAME"), world_size(environ) > 1
    if not named or not (nccl == named or several):
        return {}
    from pathlib import Path

    from berth.runtime.interfaces import choose_interface, network_interfaces

    interface = choose_interface(named, network_interfaces(Path(root)), alone=False)
    found = {"NCCL_SOCKET_IFNAME": interface} if nccl == named != interface else {}
    if several and not environ.get("GLOO_SOCKET_IFNAME"):
        found["GLOO_SOCKET_IFNAME"] = interface
    return found


def rank_variables(environ: "Mapping[str, str]", gpus: int) -> "dict[str, str]":
    """What torch's and accelerate's programs need to train together, for a rank whose environment lacks it. The ranks
    of our own entry lack nothing (berth.train.launching.environment).

    `gpus` are those that torch can use on this host.
    """
    from berth.runtime.rank import MASTER_PORT, Rank

    found = {}
    if not gpus:
        # accelerate, and with it transformers' Trainer, starts no process group on a CPU without it.
        found["ACCELERATE_USE_CPU"] = "true"
    rank = Rank.from_mpirun(environ)
    if rank is not None:
        found |= rank.variables()
        # Of SDK v3, whose MPI driver leaves it to the program to find its leader.
        found["MASTER_PORT"] = environ.get("SM_MASTER_PORT") or str(MASTER_PORT)
        if leader := "127.0.0.1" if rank.local_world_size == rank.world_size else environ.get("SM_MASTER_ADDR"):
            found["MASTER_ADDR"] = leader
    return found


def _usable_gpus(environ: "Mapping[str, str]") -> int:
    from pathlib import Path

    from berth.runtime.gpu.driver import count_gpus, torch_cuda

    return count_gpus(Path("/"), environ) if torch_cuda() else 0
