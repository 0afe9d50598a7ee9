"""A model's graph: what OpenVINO loads, with the tokenizer as the kit reads it, next to the model that it was made of.

    openvino/graph.json    of which files it was made (by their sha256), with which OpenVINO, and what it takes
    openvino/fp32.xml, .bin   the graph
    openvino/int8.xml, .bin   the same with weights and activations in int8, if it was asked for
    openvino/tokenizer.json   the tokenizer (berth.qa.tokenizer), so that a server needs no transformers

A training job's end writes it into the model, and a server makes it where it is missing. What was made of other weights
is never served: its files are compared first. Standard library only.
"""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from berth.contract.model_files import CONFIG, TOKENIZERS, WEIGHTS
from berth.runtime import whole_files
from berth.runtime.engines.model_folder import ModelFilesError
from berth.runtime.memory import CONVERSION_SCORE, set_oom_score

FOLDER = "openvino"
MANIFEST = "graph.json"
"""Not manifest.json: Multi Model Server takes a file of that name, in any folder of a model, for one of its own, and
does not start.
"""
TOKENIZER = "tokenizer.json"
FORMAT = 1
NO_MODEL = 3
"""The exit code of `convert` for a model that nothing can load."""
FULL_WEIGHT_BITS = 8
"""Of an int8 graph's weights; with 7 it is right on a CPU without VNNI, too, and loses more."""
_TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")


class GraphError(Exception):
    """A graph can't be used; one sentence says why, and what to do."""


@dataclass(frozen=True, slots=True)
class GraphManifest:
    """What a graph is, as graph.json has it."""

    openvino: str
    """The version that made it."""
    sources: Mapping[str, str]
    """The model's files that it was made of, by name: their sha256."""
    architecture: str
    max_length: int
    """The longest window, in tokens."""
    pad_id: int
    inputs: tuple[str, ...]
    """Names of the model's inputs, in its order."""
    precisions: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"fp32": {}})
    """fp32 or int8: what is known of that graph, such as its loss of F1."""
    precision: str = "fp32"
    """The one to serve where nobody says another: fp32, or bf16 on a CPU that has it."""
    format: int = FORMAT


def write_manifest(folder: Path, manifest: GraphManifest) -> None:
    """Write graph.json into the graph's folder, as a whole."""
    whole_files.write(folder / MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")


def read_manifest(folder: Path) -> GraphManifest:
    """The manifest of the graph in `folder`; GraphError if it has none that this version of the kit reads."""
    path = folder / MANIFEST
    again = f"remove {folder}, and it is made again"
    try:
        fields = json.loads(path.read_text("utf-8"))
        if fields["format"] != FORMAT:
            raise GraphError(f"{path} is of format {fields['format']}, and this kit reads {FORMAT}: {again}")
        manifest = GraphManifest(**{**fields, "inputs": tuple(fields["inputs"])})
        valid = (
            isinstance(manifest.max_length, int)
            and isinstance(manifest.pad_id, int)
            and all(isinstance(each, dict) for each in (manifest.sources, manifest.precisions))
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise GraphError(f"{path} can't be read ({type(error).__name__}: {error}): {again}") from error
    if not valid:
        raise GraphError(f"{path} is damaged: {again}")
    return manifest


def source_files(model: Path) -> list[Path]:
    """The files of the model in that folder on which a graph depends: configuration, weights, tokenizer."""
    names = [CONFIG, *WEIGHTS, *TOKENIZERS, *_TOKENIZER_SETTINGS]
    there = {model / name for name in names}
    for index in (model / name for name in WEIGHTS if name.endswith(".index.json")):
        if index.is_file():
            shards = json.loads(index.read_text("utf-8")).get("weight_map", {})
            there |= {model / str(name) for name in shards.values()}
    return sorted(path for path in there if path.is_file())


def hash_sources(model: Path) -> dict[str, str]:
    """The sha256 of each of `source_files`, by name: half a second for each gigabyte."""
    found = {}
    for path in source_files(model):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def fault_of(folder: Path, manifest: GraphManifest, openvino: str) -> str:
    """Why the graph in `folder` can't be loaded by this OpenVINO, as a sentence; empty if it can. Its sources are not
    compared: see `other_sources`.
    """
    missing = [
        name
        for name in (TOKENIZER, *(f"{each}{end}" for each in manifest.precisions for end in (".xml", ".bin")))
        if not (folder / name).is_file()
    ]
    if missing:
        return f"the graph in {folder} lacks {missing[0]}"
    if _release(manifest.openvino) > _release(openvino):
        return f"the graph in {folder} was made by OpenVINO {manifest.openvino}, and this image has {openvino}"
    return ""


def other_sources(folder: Path, manifest: GraphManifest, hashes: Mapping[str, str]) -> str:
    """Which of the model's files is another than that of which the graph was made, as a sentence; empty if none."""
    names = sorted(manifest.sources.keys() | hashes.keys())
    other = [name for name in names if manifest.sources.get(name) != hashes.get(name)]
    return f"the graph in {folder} was made of another {other[0]} than the model's" if other else ""


def make(model: Path, target: Path) -> None:
    """Make the graph of the model in a folder, in a process of its own, whose memory (torch, transformers, the model
    twice) goes with it. GraphError or ModelFilesError with its sentence if it can't be made.
    """
    command = [sys.executable, "-P", "-m", "berth.runtime.engines.convert", str(model), str(target)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        set_oom_score(process.pid, CONVERSION_SCORE)  # who waits for it can do without the graph
        _, errors = process.communicate()
    if process.returncode < 0:
        killer = signal.Signals(-process.returncode).name
        raise GraphError(
            f"no graph for OpenVINO was made of {model}: {killer} ended the conversion, as the kernel does if memory "
            "is short; give the container more"
        )
    if process.returncode:
        lines = errors.strip().splitlines() or ["no reason was given"]
        raise (ModelFilesError if process.returncode == NO_MODEL else GraphError)(lines[-1])


def _release(version: str) -> tuple[int, ...]:
    """(2026, 4) of 2026.4.1-22982-…; () of what is no version."""
    numbers = version.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdecimal())
