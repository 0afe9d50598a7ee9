"""The OpenVINO engine: runs a graph on this host's CPU.

Many batches are fastest with one stream per thread, because streams share no data; a single batch is fastest with one
stream of all threads. So with more than one thread the graph is compiled twice.
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
"""The operations of an int8 graph that are not quantised compute in float32."""


@cache
def get_core() -> Any:
    """The only OpenVINO core of this process; it lives until the process ends.

    A core with the CPU plugin replaces the stack on which signals are handled, and restores the previous one when it is
    deleted. If two cores are deleted in the order in which they were made, the second restores a stack that the first
    has unmapped, and the next SIGTERM is a segmentation fault.
    """
    return openvino.Core()


def has_bf16() -> bool:
    """Whether this CPU supports bf16. On others OpenVINO would emulate it, which is slow."""
    return "BF16" in get_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def properties(precision: str, threads: int, streams: int) -> dict[str, Any]:
    """OpenVINO's properties for compiling a model.

    The precision is always set, because OpenVINO would use bf16 on a CPU that supports it. The threads are set, because
    OpenVINO ignores a container's CPU quota (openvino#37838). Pinning is off, because it would put two processes of one
    thread each onto the same core (openvino#32444).
    """
    return {
        "INFERENCE_PRECISION_HINT": _HINT[precision],
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": streams,
        "ENABLE_CPU_PINNING": False,
        "PERFORMANCE_HINT": "THROUGHPUT" if streams > 1 else "LATENCY",
    }


def padded_length(longest: int, most: int) -> int:
    """The length to which a batch is padded, a multiple of _STEP or `most`. For each new shape OpenVINO makes kernels
    of up to 4 MB, and keeps them.
    """
    return min(longest + -longest % _STEP, most)


class _InferRequests:
    """OpenVINO's infer requests of a compiled model; a thread takes one for a batch."""

    def __init__(self, compiled: Any, count: int) -> None:
        self.compiled = compiled
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(compiled.create_infer_request())

    @contextmanager
    def take(self) -> Any:
        infer_request = self._free.get()
        try:
            yield infer_request
        finally:
            self._free.put(infer_request)


class OpenVINOEngine:
    """See engine.Engine."""

    def __init__(self, folder: Path, manifest: GraphManifest, precision: str, threads: int) -> None:
        """Load a graph; GraphError if OpenVINO can't read it. `precision`: fp32, bf16 or int8."""
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

    def _compile(self, graph: Any, precision: str, threads: int, streams: int) -> _InferRequests:
        return _InferRequests(get_core().compile_model(graph, "CPU", properties(precision, threads, streams)), streams)

    def logits(self, rows: Sequence[WindowTokens], *, alone: bool = False) -> list[RowLogits]:
        """See engine.Engine.logits."""
        length = padded_length(max(len(row.input_ids) for row in rows), self._manifest.max_length)
        inputs = model_inputs(rows, self._manifest.pad_id, length)
        with (self._whole if alone else self._streams).take() as infer_request:
            infer_request.infer({name: inputs[name] for name in self._manifest.inputs}, share_inputs=True)
            start, end = (infer_request.get_output_tensor(index).data for index in range(2))
            sizes = [len(row.input_ids) for row in rows]
            # Copies, because the next batch overwrites these arrays.
            return [RowLogits(start[at, :size].copy(), end[at, :size].copy()) for at, size in enumerate(sizes)]
