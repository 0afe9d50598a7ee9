"""Makes a model's graph: `python -m berth.runtime.engines.convert MODEL TARGET`.

MODEL is a folder with a transformers model, TARGET the folder to write (berth.runtime.engines.graph). TARGET appears
only when it is complete. The graph computes in float32; its logits for random inputs are compared with the model's.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import torch

from berth.runtime import whole_files
from berth.runtime.engines import pytorch
from berth.runtime.engines.graph import NO_MODEL, TOKENIZER, GraphError, GraphManifest, hash_sources, write_manifest
from berth.runtime.engines.model_check import reason_of
from berth.runtime.engines.model_folder import ModelFiles, ModelFilesError, find
from berth.runtime.engines.openvino import get_core

_CLOSE = 1e-3
"""The largest allowed difference of a logit; rounding causes less than a hundredth of it."""


class _Logits(torch.nn.Module):
    """The model with positional inputs in the order of `names`, and start and end logits as a tuple."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.model(**dict(zip(self.names, inputs, strict=True)))
        return output.start_logits, output.end_logits


def convert(files: ModelFiles, target: Path) -> GraphManifest:
    """Write the graph of the model in `files` into the folder `target`; an existing one is replaced.

    GraphError if OpenVINO can't convert the model or gets other logits; ModelFilesError as in `pytorch.load`.
    """
    model, tokenizer = pytorch.load(files)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if tokenizer.token_types else [])]
    module = _Logits(model, names)
    longest = pytorch.longest_window(model)
    graph = _trace(module, _probe(names, 2, min(9, longest), model.config.vocab_size))
    for port, name in zip(graph.inputs, names, strict=True):
        port.get_tensor().set_names({name})
    manifest = GraphManifest(
        openvino=openvino.__version__,
        sources=hash_sources(files.folder),
        architecture=type(model).__name__,
        max_length=longest,
        pad_id=model.config.pad_token_id or 0,
        inputs=tuple(names),
    )
    _compare(module, graph, _probe(names, 3, min(33, longest), model.config.vocab_size))
    with whole_files.scratch(target) as part:
        openvino.save_model(graph, part / "fp32.xml", compress_to_fp16=False)
        (part / TOKENIZER).write_text(tokenizer.to_json(), "utf-8")
        write_manifest(part, manifest)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    return manifest


def _trace(module: _Logits, example: Sequence[torch.Tensor]) -> openvino.Model:
    try:
        # torch's tracer warns about values that it treats as constants. _compare tests that with inputs of other sizes.
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            return openvino.convert_model(module, example_input=tuple(example))
    except Exception as error:  # a model can make the tracer or converter raise anything
        raise GraphError(f"OpenVINO can't convert {type(module.model).__name__} ({reason_of(error)})") from error


def _probe(names: Sequence[str], rows: int, tokens: int, vocabulary: int) -> list[torch.Tensor]:
    """Random inputs of a model. The last row is shorter than the others."""
    generator = torch.Generator().manual_seed(tokens)
    inputs = {
        "input_ids": torch.randint(0, vocabulary, (rows, tokens), generator=generator),
        "attention_mask": torch.ones(rows, tokens, dtype=torch.int64),
        "token_type_ids": (torch.arange(tokens) >= tokens // 2).long().repeat(rows, 1),
    }
    inputs["attention_mask"][-1, tokens - tokens // 3 :] = 0
    return [inputs[name] for name in names]


def _compare(module: _Logits, graph: openvino.Model, inputs: Sequence[torch.Tensor]) -> None:
    compiled = get_core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    theirs = list(compiled([each.numpy() for each in inputs]).values())
    with torch.inference_mode():
        ours = module(*inputs)
    is_token = inputs[module.names.index("attention_mask")].numpy() == 1
    for mine, other in zip(ours, theirs, strict=True):
        # Broken weights give NaN in both; the warm-up question reports that with a better error.
        if not np.allclose(mine.numpy()[is_token], other[is_token], rtol=0, atol=_CLOSE, equal_nan=True):
            raise GraphError(f"OpenVINO's graph of {type(module.model).__name__} gives different logits from the model")


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Convert; an error is one sentence on stderr with exit code NO_MODEL if the model can't be served, else 1."""
    model, target = map(Path, arguments)
    try:
        convert(find(model), target)
    except (GraphError, ModelFilesError) as error:
        print(error, file=sys.stderr)
        return NO_MODEL if isinstance(error, ModelFilesError) else 1
    except OSError as error:
        print(f"the graph can't be written to {target} ({error.strerror or error})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # skips the second that torch and OpenVINO take to shut down
