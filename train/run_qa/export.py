"""Writes OpenVINO graphs next to the model: in fp32, and on request in int8.

A failed export does not fail the job: the model is already written, and a warning says which graph is missing. Settings
with which the export is bound to fail are refused before the training.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random

from berth.contract.hyperparameters import HyperparameterError
from berth.qa.squad import Example
from berth.runtime.engines import graph, quantization
from berth.runtime.engines.graph import GraphError
from berth.runtime.engines.model_folder import ModelFilesError
from berth.runtime.engines.quantization import CalibrationData, Limits, WindowSettings
from berth.train.run_qa.recipe import Recipe


def sampled(examples: Iterable[Example], most: int, sample: list[Example]) -> Iterator[Example]:
    """Yield `examples` unchanged, and put a random sample of at most `most` of them into the empty list `sample`.

    This is reservoir sampling, with a fixed seed.
    """
    random = Random(0)
    for number, example in enumerate(examples, start=1):
        place = number - 1 if number <= most else random.randrange(number)
        if place < most:
            sample[place : place + 1] = [example]  # appends at first, later replaces
        yield example


def check(recipe: Recipe, counts: Mapping[str, int]) -> None:
    """Raises HyperparameterError if there are too few questions to measure an int8 graph. `counts`: by split."""
    if not recipe.export_int8 or "train" not in counts:
        return
    if reason := quantization.too_few(counts.get("validation", 0), _limits(recipe)):
        raise HyperparameterError(f"{reason}.")


def add_graph(folder: Path, say: Callable[[str], None]) -> None:
    """Write the fp32 graph next to the model in `folder`; the inference image starts faster with it."""
    try:
        graph.make(folder, folder / graph.FOLDER)
    except (GraphError, ModelFilesError) as error:
        say(f"warning: {error}: the model is saved without an OpenVINO graph, so an endpoint starts more slowly")
        return
    size = _megabytes(folder, "*")
    say(f"model: its OpenVINO graph, for a fast endpoint start, adds {size:.0f} MB (export_openvino false: no graph)")


def add_int8(recipe: Recipe, questions: CalibrationData, folder: Path, say: Callable[[str], None]) -> None:
    """Quantise the model's fp32 graph, and log the loss of F1; log a warning if there is no such graph."""
    if not (folder / graph.FOLDER / graph.MANIFEST).is_file():
        say("warning: export_int8: the model has no graph to quantise, so it is saved without an int8 graph")
        return
    settings = WindowSettings(recipe.max_seq_length, recipe.doc_stride, recipe.decoding())
    try:
        quantization.add_int8(folder, questions, settings, _limits(recipe), say)
    except GraphError as error:
        say(f"warning: {error}: the model is saved with its fp32 graph only")
        return
    size = _megabytes(folder, "int8.*")
    say(f"model: its int8 graph adds {size:.0f} MB; an endpoint uses it if BERTH_PRECISION is int8")


def _limits(recipe: Recipe) -> Limits:
    return Limits(recipe.int8_max_f1_loss, recipe.int8_few_questions)


def _megabytes(folder: Path, pattern: str) -> float:
    return sum(path.stat().st_size for path in (folder / graph.FOLDER).glob(pattern)) / 1e6
