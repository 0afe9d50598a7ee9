"""A model's graph, the files that OpenVINO loads, next to the model from which it was made.

    openvino/graph.json       the manifest: source files with their sha256, OpenVINO's version, the model's inputs
    openvino/fp32.xml, .bin   the graph
    openvino/int8.xml, .bin   the graph with weights and activations in int8, if the user added it
    openvino/tokenizer.json   the tokenizer (berth.qa.tokenizer), so that a server does not need transformers

A training job writes it into the model at its end, and a server makes it if it is missing. A server compares the source
files first, so it never serves a graph of other weights. Standard library only.
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
"""Not manifest.json: if any folder of a model has a file of that name, Multi Model Server reads it as its own and does
not start.
"""
TOKENIZER = "tokenizer.json"
FORMAT = 1
NO_MODEL = 3
"""The exit code of `convert` for a model that can't be served at all."""
FULL_WEIGHT_BITS = 8
"""Bits of an int8 graph's weights. With 7 bits it also works on a CPU without VNNI, but loses more accuracy."""
_TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")


class GraphError(Exception):
    """A graph can't be used or made; the text is one sentence with the reason and what to do."""


@dataclass(frozen=True, slots=True)
class GraphManifest:
    """The content of graph.json."""

    openvino: str
    """OpenVINO's version that made it."""
    sources: Mapping[str, str]
    """File name → sha256 of the model's files from which it was made."""
    architecture: str
    max_length: int
    """The longest window, in tokens."""
    pad_id: int
    inputs: tuple[str, ...]
    """Names of the model's inputs, in its order."""
    precisions: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"fp32": {}})
    """fp32 or int8 → figures of that graph, such as its loss of F1."""
    precision: str = "fp32"
    """The precision to serve by default: fp32 or bf16."""
    format: int = FORMAT


def write_manifest(folder: Path, manifest: GraphManifest) -> None:
    """Write graph.json into the graph's folder, atomically."""
    whole_files.write(folder / MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")


def read_manifest(folder: Path) -> GraphManifest:
    """The manifest of the graph in `folder`; GraphError if it is missing, damaged or of another format."""
    path = folder / MANIFEST
    again = f"remove {folder} to have it made again"
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
    """The files of a model's folder on which its graph depends: configuration, weights, tokenizer."""
    names = [CONFIG, *WEIGHTS, *TOKENIZERS, *_TOKENIZER_SETTINGS]
    files = {model / name for name in names}
    for index in (model / name for name in WEIGHTS if name.endswith(".index.json")):
        if index.is_file():
            shards = json.loads(index.read_text("utf-8")).get("weight_map", {})
            files |= {model / str(name) for name in shards.values()}
    return sorted(path for path in files if path.is_file())


def hash_sources(model: Path) -> dict[str, str]:
    """File name → sha256 of the `source_files`; takes half a second per gigabyte."""
    hashes = {}
    for path in source_files(model):
        with path.open("rb") as file:
            hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def fault_of(folder: Path, manifest: GraphManifest, openvino: str) -> str:
    """Why this OpenVINO can't load the graph in `folder`, as a sentence; empty if it can. `other_sources` compares the
    source files.
    """
    missing = [
        name
        for name in (TOKENIZER, *(f"{each}{end}" for each in manifest.precisions for end in (".xml", ".bin")))
        if not (folder / name).is_file()
    ]
    if missing:
        return f"the graph in {folder} lacks {missing[0]}"
    if _release(manifest.openvino) > _release(openvino):
        made_by = f"was made by OpenVINO {manifest.openvino}"
        return f"the graph in {folder} {made_by}, which is newer than this image's {openvino}"
    return ""


def other_sources(folder: Path, manifest: GraphManifest, hashes: Mapping[str, str]) -> str:
    """Which of the model's files has changed since the graph was made, as a sentence; empty if none."""
    names = sorted(manifest.sources.keys() | hashes.keys())
    changed = [name for name in names if manifest.sources.get(name) != hashes.get(name)]
    return f"the graph in {folder} was made from a {changed[0]} that differs from the model's" if changed else ""


def make(model: Path, target: Path) -> None:
    """Make the graph of the model in a folder. It runs in another process, whose memory (torch, transformers, the model
    twice) is freed at its end. GraphError or ModelFilesError with its error if it fails.
    """
    command = [sys.executable, "-P", "-m", "berth.runtime.engines.convert", str(model), str(target)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        set_oom_score(process.pid, CONVERSION_SCORE)  # the waiting worker can do without the graph
        _, errors = process.communicate()
    if process.returncode < 0:
        killer = signal.Signals(-process.returncode).name
        raise GraphError(
            f"no graph for OpenVINO was made of {model}: {killer} ended the conversion; if the kernel ran out of "
            "memory, give the container more"
        )
    if process.returncode:
        lines = errors.strip().splitlines() or ["no reason was given"]
        raise (ModelFilesError if process.returncode == NO_MODEL else GraphError)(lines[-1])


def _release(version: str) -> tuple[int, ...]:
    """(2026, 4) for 2026.4.1-22982-…; () for a text that is not a version."""
    numbers = version.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdecimal())
