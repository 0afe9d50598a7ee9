"""Notes in a rank's file an exchange of tensors before its first optimizer step, and a digest of its weights after it.

Ranks that train one model with DDP have bit-equal weights after each step. DDP's exchange is below Python and not seen
here. Libraries that shard or split a model call torch.distributed's functions, or have DTensors as parameters. So if
the weights differ and no exchange was seen, the ranks train separate models; berth.train.startup.rank_events then makes
the warning. Called by berth.train.startup.rank_hook.
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
"""torch.distributed's functions that send tensors; those that send objects call them. barrier sends none."""


class FirstStep:
    """Watches a process until its first optimizer step is done; calls `say` with each event."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._exchanged = self._done = False

    def watch_exchanges(self, module: ModuleType) -> None:
        """Wrap the functions of torch.distributed.distributed_c10d, before other modules import them from there."""
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
        """Tell torch._dynamo.eval_frame not to compile these wrappers, like torch's own functions.

        Otherwise each exchange would cause one more graph break.
        """
        watching = [FirstStep._noting, FirstStep.watch_optimizers, _compiling, _recording, digest, note, self._say]
        for code in (code for function in watching for code in _codes(function.__code__)):
            module.skip_code(code)

    def watch_optimizers(self, module: ModuleType) -> None:
        """Register hooks in torch.optim.optimizer. torch before 2.0 has no such hooks; then nothing is noted."""
        torch: Any = module.torch
        depth = 0  # a ZeroRedundancyOptimizer calls the step of another one, which has a part of the weights

        def before_step(*_: Any) -> None:
            nonlocal depth
            depth += 1

        def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            nonlocal depth
            depth -= 1
            try:
                # _recording first: compiled code must not depend on `_done`, or it would be compiled again.
                if _recording(torch) or self._done or depth:
                    return
                self._done = True
                parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
                weights = digest(parameters, torch.float64)
            except Exception:
                return  # an unknown version of torch or type of tensor must not disturb the program
            if weights:
                self._say(f"{WEIGHTS}{weights}")

        module.register_optimizer_step_pre_hook(before_step)
        module.register_optimizer_step_post_hook(after_step)


def _compiling(torch: Any) -> bool:
    """Whether torch.compile is tracing this call; False if torch has no compiler.

    The compiler treats the result as a constant, so the wrapper leaves nothing in the graph.
    """
    compiler: Any = getattr(torch, "compiler", None)
    return hasattr(compiler, "is_compiling") and bool(compiler.is_compiling())


def _recording(torch: Any) -> bool:
    """Whether torch.compile is tracing (no file may be written) or CUDA captures a graph (no weight can be read)."""
    if _compiling(torch):
        return True
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects of a function and of all functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def digest(parameters: list[Any], precise: Any) -> str:
    """A hash of each parameter's sum in the type `precise`: equal weights give equal hashes, different ones almost
    never do. Empty if there are DTensors, because each rank has only a part of these.
    """
    if any(hasattr(parameter, "placements") for parameter in parameters):
        return ""
    sums = [float(parameter.detach().sum(dtype=precise)) for parameter in parameters]
    return f"{zlib.crc32(repr(sums).encode()):08x}"
