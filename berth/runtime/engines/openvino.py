"""The OpenVINO engine: a graph on this host's CPU, in several streams of one thread, or one of all for a lone batch.

Streams that share no data use a CPU best; a request that is alone is answered sooner by all threads together. Hence two
compiled models over one graph, where there is more than one thread. Every property is OpenVINO's own.
"""

import queue
from collections.abc import Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import openvino

from berth.runtime.engines.batches import model_inputs
from berth.runtime.engines.engine import EngineInfo, RowLogits, WindowTokens
from berth.runtime.engines.graph import GraphError, GraphManifest

ROWS = 4
_STEP = 16
_HINT = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
"""What is not quantised in an int8 graph computes in float32."""


@cache
def get_core() -> Any:
    """OpenVINO's core, the one of this process, for as long as it lives.

    A core that loads its CPU plugin sets the stack that signals are handled on, and gives the one before it back when
    it goes. Of two that do not go in the reverse order of their coming, the second gives back what the first has
    unmapped, and the next SIGTERM is a segmentation fault.
    """
    return openvino.Core()


def has_bf16() -> bool:
    """Whether this CPU computes in bf16 by itself; elsewhere OpenVINO would emulate it, slowly."""
    return "BF16" in get_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def properties(precision: str, threads: int, streams: int) -> dict[str, Any]:
    """What a model is compiled with.

    The precision is always said: OpenVINO takes bf16 by itself on a CPU that has it. So are the threads, for it does
    not see a container's quota (openvino#37838); and pinning is off, which would put two processes of one thread each
    onto the same core (openvino#32444).
    """
    return {
        "INFERENCE_PRECISION_HINT": _HINT[precision],
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": streams,
        "ENABLE_CPU_PINNING": False,
        "PERFORMANCE_HINT": "THROUGHPUT" if streams > 1 else "LATENCY",
    }


def padded_length(longest: int, most: int) -> int:
    """To how many tokens a batch is padded: one of few lengths, for OpenVINO makes kernels of up to 4 MB for each shape
    that it has not seen, and keeps them.
    """
    return min(longest + -longest % _STEP, most)


class _Requests:
    """The infer requests of a compiled model, each for one thread at a time."""

    def __init__(self, compiled: Any, count: int) -> None:
        self.compiled = compiled
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(compiled.create_infer_request())

    @contextmanager
    def take(self) -> Any:
        request = self._free.get()
        try:
            yield request
        finally:
            self._free.put(request)


class OpenVINOEngine:
    """See engine.Engine."""

    def __init__(self, folder: Path, manifest: GraphManifest, precision: str, threads: int) -> None:
        """Load a graph; GraphError if OpenVINO can't read it. `precision` is a key of the manifest's, or bf16."""
        self._manifest = manifest
        file = folder / ("int8.xml" if precision == "int8" else "fp32.xml")
        try:
            graph = get_core().read_model(file)
            self._streams = self._compile(graph, precision, threads, threads)
            self._whole = self._compile(graph, precision, threads, 1) if threads > 1 else self._streams
        except RuntimeError as error:
            line = str(error).strip().splitlines()[-1:] or [""]
            raise GraphError(f"OpenVINO can't load {file} ({line[0][:200]})") from error
        version = openvino.__version__.split("-")[0]
        self.info = EngineInfo(
            description=f"OpenVINO {version}, {manifest.architecture}, {precision} on {threads} threads",
            precision=precision,
            max_length=manifest.max_length,
            slots=threads,
            rows=ROWS,
        )

    def _compile(self, graph: Any, precision: str, threads: int, streams: int) -> _Requests:
        return _Requests(get_core().compile_model(graph, "CPU", properties(precision, threads, streams)), streams)

    def logits(self, rows: Sequence[WindowTokens], *, alone: bool = False) -> list[RowLogits]:
        """See engine.Engine.logits."""
        length = padded_length(max(len(row.input_ids) for row in rows), self._manifest.max_length)
        inputs = model_inputs(rows, self._manifest.pad_id, length)
        with (self._whole if alone else self._streams).take() as request:
            request.infer({name: inputs[name] for name in self._manifest.inputs}, share_inputs=True)
            start, end = (request.get_output_tensor(index).data for index in range(2))
            sizes = [len(row.input_ids) for row in rows]
            # Copies: the next batch is written where these are.
            return [RowLogits(start[at, :size].copy(), end[at, :size].copy()) for at, size in enumerate(sizes)]
