"""Start the ranks of bench.model_parallel_memory, _overlap and _sharding, and describe the measurement."""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import program
from berth.images.pins import pins

sys.path.append(str(pins.ROOT / "smdistributed" / "tests"))

import rank_jobs

SIZES = {
    "layers": "layers of the BERT",
    "hidden": "its hidden size",
    "rows": "texts per step",
    "length": "tokens per text",
    "words": "size of the vocabulary",
}
LIMIT = 3600.0
FREED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}
"""For glibc, which else keeps what was freed, so that a process' memory says little about what it needs."""
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
    "MALLOC_ARENA_MAX": "1",
}
"""Memory that was freed stays with the process. Else each microbatch's thread fetches its own again in every step."""
BODY = f"""
sys.path.append({str(pins.ROOT)!r})
import json, logging
logging.disable(logging.WARNING)
from bench.scripts import control_messages, model_parallel_bert, model_parallel_ways, sleeping_layers
arguments = json.loads(os.environ["ARGUMENTS"])
if "shape" in arguments:
    arguments["shape"] = model_parallel_bert.Shape(**arguments["shape"])
name = arguments.pop("function")
modules = control_messages, model_parallel_ways, sleeping_layers, model_parallel_bert
module = next(each for each in modules if hasattr(each, name))
result(getattr(module, name)(**arguments))
"""


def add_sizes(parser: argparse.ArgumentParser, **defaults: int) -> None:
    """Add options for the sizes of the model and its batches."""
    for name, text in SIZES.items():
        parser.add_argument(
            f"--{name}", type=program.positive, default=defaults[name], metavar="N", help=f"{text}; {defaults[name]}"
        )


def run(
    function: str, size: int, options: argparse.Namespace, memory: Mapping[str, str] = FREED, **arguments: Any
) -> list[Any]:
    """Call a function by name with the model's shape on `size` ranks; returns each rank's result."""
    return call(function, size, memory, shape={name: getattr(options, name) for name in SIZES}, **arguments)


def call(function: str, size: int, memory: Mapping[str, str] = FREED, **arguments: Any) -> list[Any]:
    """Call a function of the modules that BODY imports on `size` ranks; returns each rank's result."""
    text = json.dumps({"function": function, **arguments})
    with tempfile.TemporaryDirectory(prefix="berth-pipeline-") as scratch:
        return rank_jobs.run(BODY, size, Path(scratch), limit=LIMIT, ARGUMENTS=text, **memory)


def setting(name: str, words: Sequence[str], options: argparse.Namespace) -> str:
    """The command, the machine and the model."""
    return (
        f"{program.setting(name, words)}; ranks as processes over gloo, one thread each. BERT for question answering, "
        f"{options.layers} layers of {options.hidden}, {options.words} words; a step has {options.rows} texts of "
        f"{options.length} tokens, fp32."
    )
