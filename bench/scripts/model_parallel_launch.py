"""How bench.model_parallel_memory and bench.model_parallel_overlap start ranks, and say what they ran on."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from bench import program
from bench.machine import this_cpu
from berth.images.build.revision import read_revision
from berth.images.pins import pins

sys.path.append(str(pins.ROOT / "smdistributed" / "tests"))

import rank_jobs

SIZES = {
    "layers": "of the BERT",
    "hidden": "its width",
    "rows": "texts of a step",
    "length": "tokens of a text",
    "words": "its vocabulary",
}
LIMIT = 3600.0
BODY = f"""
sys.path.append({str(pins.ROOT)!r})
import json, logging
logging.disable(logging.WARNING)
from bench.scripts import model_parallel_bert
given = json.loads(os.environ["GIVEN"])
shape = model_parallel_bert.Shape(**given.pop("shape"))
result(getattr(model_parallel_bert, given.pop("function"))(shape, **given))
"""


def add_sizes(parser: argparse.ArgumentParser, **defaults: int) -> None:
    """Options for the model and its batches."""
    for name, said in SIZES.items():
        parser.add_argument(
            f"--{name}", type=program.positive, default=defaults[name], metavar="N", help=f"{said}; {defaults[name]}"
        )


def run(function: str, size: int, asked: argparse.Namespace, **given: Any) -> list[Any]:
    """What a function of model_parallel_bert returns on each of `size` ranks."""
    shape = {name: getattr(asked, name) for name in SIZES}
    text = json.dumps({"function": function, "shape": shape, **given})
    with tempfile.TemporaryDirectory(prefix="berth-pipeline-") as made:
        return rank_jobs.run(BODY, size, Path(made), limit=LIMIT, GIVEN=text)


def told(name: str, words: list[str], asked: argparse.Namespace) -> str:
    """The command, the machine and the model."""
    command = " ".join([f"python -m bench.{name}", *words])
    return (
        f"`{command}`, ranks as processes over gloo, one thread each, torch {torch.__version__}, transformers "
        f"{transformers.__version__}, {this_cpu()}, {os.cpu_count()} cores, kit {read_revision(pins.ROOT)}. BERT for "
        f"question answering, {asked.layers} layers of {asked.hidden}, {asked.words} words; a step has {asked.rows} "
        f"texts of {asked.length} tokens, fp32."
    )
