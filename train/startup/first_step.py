"""Notes in a rank's file what it exchanged before its first optimizer step, and a digest of its weights after it.

Ranks that train one model have equal weights after each step, to the last bit: DDP sees to that, whose exchange is
below Python and not seen here. What shards or splits a model calls torch.distributed's own functions, or has DTensors
for parameters. So weights that differ though nothing was exchanged are those of ranks that train apart, which
berth.train.startup.rank_events says. Called by berth.train.startup.rank_hook.
"""

import functools
import zlib
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from berth.train.startup.rank_events import EXCHANGED, WEIGHTS, note

_EXCHANGES = (
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single"),
    *("all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "broadcast", "gather", "scatter"),
    *("reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor"),
    *("batch_isend_irecv", "irecv", "isend", "recv", "send"),
)
"""torch.distributed's functions that move tensors; those that move objects call them. A barrier is none."""


class FirstStep:
    """Watches a process until its first optimizer step is done; `say` takes an event."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._exchanged = self._done = False

    def watch_exchanges(self, module: ModuleType) -> None:
        """Of torch.distributed.distributed_c10d, before others take its functions."""
        for name in _EXCHANGES:
            if hasattr(module, name):
                setattr(module, name, self._noting(getattr(module, name), module.torch))

    def _noting(self, original: Callable[..., Any], torch: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def exchange(*args: Any, **kwargs: Any) -> Any:
            if not (_compiling(torch) or self._exchanged or self._done):
                self._exchanged = True
                self._say(EXCHANGED)
            return original(*args, **kwargs)

        return exchange

    def hide(self, module: ModuleType) -> None:
        """Of torch._dynamo.eval_frame: torch.compile must not compile the code of this watch, as it does not torch's.

        Otherwise each exchange would break a graph once more.
        """
        watching = [FirstStep._noting, FirstStep.watch_optimizers, _compiling, _recording, digest, note, self._say]
        for code in (code for function in watching for code in _codes(function.__code__)):
            module.skip_code(code)

    def watch_optimizers(self, module: ModuleType) -> None:
        """Of torch.optim.optimizer; before 2.0 torch has no such hook, and nothing is noted."""
        torch: Any = module.torch
        depth = 0  # a ZeroRedundancyOptimizer steps another one with a share of the weights

        def before_step(*_: Any) -> None:
            nonlocal depth
            depth += 1

        def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            nonlocal depth
            depth -= 1
            try:
                # First: what is compiled must not depend on `_done`, or it is compiled again.
                if _recording(torch) or self._done or depth:
                    return
                self._done = True
                seen = digest([each for group in optimizer.param_groups for each in group["params"]], torch.float64)
            except Exception:
                return  # of a torch or a tensor of some other kind; the program is to train as it would without
            if seen:
                self._say(f"{WEIGHTS}{seen}")

        module.register_optimizer_step_pre_hook(before_step)
        module.register_optimizer_step_post_hook(after_step)


def _compiling(torch: Any) -> bool:
    """Whether torch.compile traces this call, which then must leave nothing in the graph; False in a torch without it.

    The compiler takes it for a constant.
    """
    compiler: Any = getattr(torch, "compiler", None)
    return hasattr(compiler, "is_compiling") and bool(compiler.is_compiling())


def _recording(torch: Any) -> bool:
    """Whether torch.compile traces what runs, which then writes no file, or CUDA records it, which reads no weight."""
    if _compiling(torch):
        return True
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of all functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def digest(parameters: list[Any], precise: Any) -> str:
    """A hash of each parameter's sum in the type `precise`: equal weights give equal hashes, different ones almost
    never do. Empty for DTensors, of which each rank has a share.
    """
    if any(hasattr(each, "placements") for each in parameters):
        return ""
    sums = [float(each.detach().sum(dtype=precise)) for each in parameters]
    return f"{zlib.crc32(repr(sums).encode()):08x}"
