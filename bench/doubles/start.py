"""The program of each rank: runs a published script as `python SCRIPT …` would, and keeps what came of it.

Usage: python doubles/start.py [ARGUMENT ...], in the folder of the script

RECORDED_SCRIPT names it. RECORD_FOLDER gets rank-N.log, what rank N printed, and rank-N.pt, its weights at the end by
name. REFERENCE_REPLICAS makes this process all of the replicas, by the reference in one_process/,
which REFERENCE_MICROBATCHES and REFERENCE_REVERSED make add gradients in another order.
"""

import gc
import importlib.util
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any, TextIO

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

HERE = Path(__file__).resolve().parent


def own_rank() -> int:
    """This process', as the training image says it; of one process, the replica's that runs."""
    if "replicas" in sys.modules:
        return int(sys.modules["replicas"].rank())
    return int(os.environ.get("RANK", "0"))


class Tee:
    """Standard output, which the file of the rank that prints gets as well."""

    def __init__(self, stream: TextIO, folder: Path) -> None:
        self._stream = stream
        self._folder = folder

    def write(self, text: str) -> int:
        with (self._folder / f"rank-{own_rank()}.log").open("a", encoding="utf-8") as file:
            file.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Weights:
    """The parameters that a rank's optimizers step, by their model's names where the model parallel library has one."""

    def __init__(self) -> None:
        self._optimizers: dict[int, list[torch.optim.Optimizer]] = {}
        self._models: dict[int, torch.nn.Module] = {}
        register_optimizer_step_post_hook(self._after_step)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        mine = self._optimizers.setdefault(own_rank(), [])
        if optimizer in mine:
            return
        mine.append(optimizer)
        self._find_model()

    def _find_model(self) -> None:
        library = sys.modules.get("smdistributed.modelparallel.torch")
        if library is None or own_rank() in self._models:
            return
        taken = {id(model) for model in self._models.values()}
        found = [each for each in gc.get_objects() if type(each) is library.DistributedModel and id(each) not in taken]
        if found:
            self._models[own_rank()] = found[0]

    def save(self, folder: Path) -> None:
        """A file for every rank that stepped: replica and weights."""
        library = sys.modules.get("smdistributed.modelparallel.torch")
        for rank, optimizers in self._optimizers.items():
            if (model := self._models.get(rank)) is not None and library is not None:
                replica = rank if "replicas" in sys.modules else library.dp_rank()
                kept = {"replica": replica, "weights": tensors(model.local_state_dict())}
            else:
                parameters = [each for one in optimizers for group in one.param_groups for each in group["params"]]
                kept = {
                    "replica": rank,
                    "weights": {str(place): each.detach() for place, each in enumerate(parameters)},
                }
            torch.save(kept, folder / f"rank-{rank}.pt")


def tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Of a state dict, the tensors: the library adds a mark of its own to a partition's."""
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def run(code: CodeType, script: Path) -> None:
    """The script's text as the main program."""
    exec(code, {"__name__": "__main__", "__file__": str(script), "__builtins__": __builtins__})


def main() -> None:
    script = Path(os.environ["RECORDED_SCRIPT"])
    sys.argv[0] = str(script)
    folder = Path(os.environ["RECORD_FOLDER"])
    torch.set_num_threads(1)
    sys.path[0:1] = [str(script.resolve().parent), str(HERE / "packages")]
    sys.path.append(str(HERE / "lacking"))
    if importlib.util.find_spec("tensorboard") is None:
        sys.modules["torch.utils.tensorboard"] = importlib.import_module("summary_writer")
    count = int(os.environ.get("REFERENCE_REPLICAS", "0"))
    if count:
        sys.path.insert(0, str(HERE / "one_process"))
        import replicas
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 -- before the script takes DDP from torch
    sys.stdout = Tee(sys.stdout, folder)
    weights = Weights()
    code = compile(script.read_text("utf-8"), str(script), "exec")
    if count:
        replicas.start(count, lambda: run(code, script))
    else:
        run(code, script)
    weights.save(folder)


if __name__ == "__main__":
    main()
