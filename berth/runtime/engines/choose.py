"""Loads the model under /opt/ml/model with the engine that fits this host."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from berth.qa.tokenizer import PairTokenizer
from berth.runtime.cpus import has_vnni
from berth.runtime.engines import graph
from berth.runtime.engines.conversion import kept_folder, make_graph_once, refuse
from berth.runtime.engines.engine import Engine
from berth.runtime.engines.graph import FOLDER, FULL_WEIGHT_BITS, TOKENIZER, GraphError, GraphManifest, read_manifest
from berth.runtime.engines.model_folder import ModelFiles, ModelFilesError, find

PRECISIONS = ("fp32", "bf16", "fp16", "int8")
PRECISION_VARIABLE = "BERTH_PRECISION"
FOLDER_VARIABLE = "BERTH_GRAPH_DIR"
DEFAULT_FOLDER = "/tmp/berth-graph"


class LoadedModel(NamedTuple):
    """A model with its tokenizer and engine."""

    files: ModelFiles
    tokenizer: PairTokenizer
    engine: Engine


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to load a model. `precision`: empty for the default. `folder`: for the graph, if the model has none."""

    threads: int
    cuda: bool = False
    precision: str = ""
    folder: Path = Path(DEFAULT_FOLDER)


def settings(environ: Mapping[str, str], threads: int, *, cuda: bool) -> EngineSettings:
    """The settings in the environment; ModelFilesError for an unknown precision."""
    precision = environ.get(PRECISION_VARIABLE, "").strip().lower()
    if precision and precision not in PRECISIONS:
        raise ModelFilesError(f"{PRECISION_VARIABLE} is `{precision}`: it must be one of {', '.join(PRECISIONS)}")
    return EngineSettings(threads, cuda, precision, Path(environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER))


def load(model_dir: Path, options: EngineSettings, say: Callable[[str], None]) -> LoadedModel:
    """Find and load the model under `model_dir`; ModelFilesError with one sentence if it can't be served.

    PyTorch is used on a GPU, without OpenVINO, and if OpenVINO can't load the model; OpenVINO otherwise. `say` gets
    lines for the log.
    """
    files = find(model_dir)
    if options.cuda or find_spec("openvino") is None:
        return _load_pytorch(files, options)
    try:
        with ThreadPoolExecutor(1, "hash") as thread:  # while the graph loads, which takes as long
            return _load_openvino(files, options, say, thread.submit(graph.hash_sources, files.folder))
    except GraphError as error:
        if options.precision not in ("", "fp32"):
            raise ModelFilesError(f"{error}: {PRECISION_VARIABLE}={options.precision} needs it") from error
        say(f"using PyTorch instead of OpenVINO: {error}")
        return _load_pytorch(files, options)


def _load_pytorch(files: ModelFiles, options: EngineSettings) -> LoadedModel:
    if not (options.precision in ("", "fp32") or (options.cuda and options.precision in ("bf16", "fp16"))):
        reason = "a GPU supports fp32, bf16 and fp16" if options.cuda else "without OpenVINO a CPU supports only fp32"
        raise ModelFilesError(
            f"{PRECISION_VARIABLE} is {options.precision}, and {reason}: choose another, or leave it out"
        )
    from berth.runtime.engines import pytorch  # its import takes seconds

    engine = pytorch.PyTorchEngine(files, options.threads, options.precision)
    return LoadedModel(files, engine.tokenizer, engine)


def _load_openvino(
    files: ModelFiles, options: EngineSettings, say: Callable[[str], None], hashes: Future[dict[str, str]]
) -> LoadedModel:
    """Load the model's own graph; if it has none that can be used, make one. `hashes`: those of the model's files."""
    import openvino

    own = files.folder / FOLDER
    if own.is_dir():
        try:
            return _load_graph(own, files, options, hashes)
        except GraphError as error:
            say(f"{error}: it is not used")
    if options.precision == "int8":
        raise ModelFilesError(_no_int8(files.folder))
    kept = kept_folder(options.folder, hashes.result(), openvino.__version__)
    make_graph_once(files.folder, kept, openvino.__version__, say)
    try:
        return _load_graph(kept, files, options, hashes)
    except GraphError as error:
        refuse(kept, error)
        raise


def _load_graph(
    folder: Path, files: ModelFiles, options: EngineSettings, hashes: Future[dict[str, str]]
) -> LoadedModel:
    """GraphError if the graph in `folder` can't be used for this model; ModelFilesError if it lacks the precision."""
    import openvino

    from berth.runtime.engines.openvino import OpenVINOEngine

    manifest = read_manifest(folder)
    if fault := graph.fault_of(folder, manifest, openvino.__version__):
        raise GraphError(fault)
    precision = _precision(manifest, files, options)
    engine = OpenVINOEngine(folder, manifest, precision, options.threads)
    if other := graph.other_sources(folder, manifest, hashes.result()):
        raise GraphError(other)
    try:
        tokenizer = PairTokenizer.from_json((folder / TOKENIZER).read_text("utf-8"))
    except ValueError as error:
        raise GraphError(f"the tokenizer in {folder} can't be used: {error}") from error
    return LoadedModel(files, tokenizer, engine)


def _precision(manifest: GraphManifest, files: ModelFiles, options: EngineSettings) -> str:
    """The user's precision, else the graph's; ModelFilesError if the graph or this CPU does not support it."""
    from berth.runtime.engines.openvino import has_bf16

    precision = options.precision or manifest.precision
    if precision == "fp16":
        raise ModelFilesError(f"{PRECISION_VARIABLE} is fp16, which is for GPUs: use bf16, or leave it out")
    if precision == "int8" and "int8" not in manifest.precisions:
        raise ModelFilesError(_no_int8(files.folder))
    if precision == "int8" and manifest.precisions["int8"].get("weight_bits") == FULL_WEIGHT_BITS and not has_vnni():
        raise ModelFilesError(
            f"the int8 graph in {files.folder} is for CPUs with VNNI, which this one lacks, so its sums would "
            f"overflow: use an instance type that has it, such as ml.c6i or ml.m6i, or {PRECISION_VARIABLE}=fp32"
        )
    if precision == "bf16" and not has_bf16():
        raise ModelFilesError(
            "bf16 was requested, but this CPU does not support it: use an instance type whose CPU has avx512_bf16 or "
            f"amx_bf16, or {PRECISION_VARIABLE}=fp32"
        )
    return precision


def _no_int8(folder: Path) -> str:
    return (
        f"int8 was requested, but {folder} has no such graph: add one with `python build.py quantize`, or unset "
        f"{PRECISION_VARIABLE}"
    )
