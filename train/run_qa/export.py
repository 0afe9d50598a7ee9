"""What a job writes next to its model for OpenVINO: the graph in fp32, and in int8 where that is asked for.

Neither fails a job: the model is there, and a warning says what is missing. What could only fail is refused before the
training.
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


class Sample:
    """At most so many of the questions that pass, each as likely as any other, and the same ones at each call."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.examples: list[Example] = []

    def through(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The same questions; of the n-th, each place in the sample is taken with probability 1 / n."""
        random = Random(0)
        for number, example in enumerate(examples, start=1):
            place = number - 1 if number <= self.most else random.randrange(number)
            if place == len(self.examples) < self.most:
                self.examples.append(example)
            elif place < self.most:
                self.examples[place] = example
            yield example


def check(recipe: Recipe, counts: Mapping[str, int]) -> None:
    """Raises HyperparameterError where the questions are too few to measure an int8 graph on; `counts` by split."""
    if not recipe.export_int8 or "train" not in counts:
        return
    if reason := quantization.too_few(counts.get("validation", 0), _limits(recipe)):
        raise HyperparameterError(f"{reason}.")


def add_graph(folder: Path, say: Callable[[str], None]) -> None:
    """Write the graph with which the inference image starts in seconds next to the model in `folder`."""
    try:
        graph.make(folder, folder / graph.FOLDER)
    except (GraphError, ModelFilesError) as error:
        say(f"warning: {error}: the model is saved without a graph for OpenVINO, and an endpoint starts more slowly")
        return
    size = _megabytes(folder, "*")
    say(f"model: its graph for a fast start of an endpoint adds {size:.0f} MB (export_openvino false leaves it out)")


def add_int8(recipe: Recipe, questions: CalibrationData, folder: Path, say: Callable[[str], None]) -> None:
    """Quantise the graph next to the model, if it is there, and say what that loses."""
    if not (folder / graph.FOLDER / graph.MANIFEST).is_file():
        say("warning: export_int8: the model has no graph to quantise, so it is saved without one in int8")
        return
    settings = WindowSettings(recipe.max_seq_length, recipe.doc_stride, recipe.decoding())
    try:
        quantization.add_int8(folder, questions, settings, _limits(recipe), say)
    except GraphError as error:
        say(f"warning: {error}: the model is saved with its fp32 graph alone")
        return
    size = _megabytes(folder, "int8.*")
    say(f"model: its int8 graph adds {size:.0f} MB; an endpoint serves it where BERTH_PRECISION is int8")


def _limits(recipe: Recipe) -> Limits:
    return Limits(recipe.int8_max_f1_loss, recipe.int8_few_questions)


def _megabytes(folder: Path, pattern: str) -> float:
    return sum(path.stat().st_size for path in (folder / graph.FOLDER).glob(pattern)) / 1e6
