"""Adds an int8 graph to a model: `python -m berth.runtime.engines.quantize MODEL TARGET --calibration PATH …`.

MODEL is a folder with a transformers model, TARGET the folder of its graph (berth.runtime.engines.graph). The graph is
made if neither TARGET nor MODEL has a usable one. NNCF converts weights and activations to int8; windows of the
calibration data show it the range of the activations. Then both graphs answer the same questions, and the loss of int8
is printed and written into the manifest. An int8 graph that loses more than the limit is deleted.
"""

import argparse
import json
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import openvino

from berth.qa import metrics
from berth.qa.spans import EVALUATION, Decoding, LogitsError, Span, predict
from berth.qa.squad import DataError, Example, read
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Serving, Window, WindowError, make_windows
from berth.runtime import whole_files
from berth.runtime.cpus import has_vnni, model_threads
from berth.runtime.engines import graph
from berth.runtime.engines.batches import model_inputs
from berth.runtime.engines.engine import Engine, logits_of_all, row_of
from berth.runtime.engines.graph import (
    FOLDER,
    FULL_WEIGHT_BITS,
    TOKENIZER,
    GraphError,
    GraphManifest,
    read_manifest,
    write_manifest,
)
from berth.runtime.engines.model_check import reason_of
from berth.runtime.engines.model_folder import ModelFiles, ModelFilesError, find
from berth.runtime.engines.openvino import OpenVINOEngine, get_core
from berth.runtime.engines.quantization import (
    CALIBRATION_QUESTIONS,
    MOST_QUESTIONS,
    CalibrationData,
    Comparison,
    Limits,
    WindowSettings,
    refusal,
    too_few,
)

_PARTS = 5
"""Progress lines per graph."""

Say = Callable[[str], None]


def add_int8(folder: Path, data: CalibrationData, settings: WindowSettings, limits: Limits, say: Say) -> Comparison:
    """Add the int8 graph to the folder of a graph, and write its loss into the manifest.

    GraphError if it loses too much, or NNCF can't make it; the folder is then unchanged. WindowError and LogitsError as
    in berth.qa.
    """
    manifest = read_manifest(folder)
    tokenizer = PairTokenizer.from_json((folder / TOKENIZER).read_text("utf-8"))
    length = min(settings.max_length, manifest.max_length)
    questions = sample(data.validation, MOST_QUESTIONS)
    stride = settings.stride if settings.stride < length else length // 2
    shrink = Serving(shrink_stride=True)  # as a server does; a job refuses such questions
    windows = make_windows(tokenizer, questions, length, stride, serving=shrink)
    calibration = make_windows(
        tokenizer, sample(data.calibration, CALIBRATION_QUESTIONS), length, stride, serving=shrink
    )
    calibration = random.Random(0).sample(calibration, min(len(calibration), CALIBRATION_QUESTIONS))
    with whole_files.scratch(folder / "int8") as part:
        say(f"int8: NNCF quantises the graph with {len(calibration)} windows of the calibration data")
        # Without VNNI, sums of 8-bit products overflow, so the loss measured here would be wrong for other CPUs.
        weight_bits = FULL_WEIGHT_BITS if has_vnni() else FULL_WEIGHT_BITS - 1
        int8 = quantised(folder, manifest, calibration, weight_bits)
        openvino.save_model(int8, part / "int8.xml", compress_to_fp16=False)
        comparison = compare(
            {
                name: _answers(OpenVINOEngine(at, manifest, name, model_threads()), windows, questions, settings, say)
                for name, at in (("fp32", folder), ("int8", part))
            },
            questions,
            no_answer=settings.decoding.no_answer,
        )
        say(f"int8: {comparison.sentence()}")
        if reason := refusal(comparison, limits):
            raise GraphError(reason)
        others = {name: known for name, known in manifest.precisions.items() if name != "int8"}
        # First without int8: a kill between the two files leaves a manifest that does not name them.
        write_manifest(folder, replace(manifest, precisions=others))
        for name in ("int8.xml", "int8.bin"):
            (part / name).replace(folder / name)
    figures = {**comparison.record(), "weight_bits": weight_bits}
    write_manifest(folder, replace(manifest, precisions={**others, "int8": figures}))
    return comparison


def sample(examples: Sequence[Example], most: int) -> list[Example]:
    """A random sample of at most `most` examples; the same in every call."""
    return random.Random(0).sample(list(examples), min(len(examples), most))


def quantised(folder: Path, manifest: GraphManifest, windows: Sequence[Window], weight_bits: int) -> Any:
    """The graph in `folder` with activations in int8 and weights of 8 or 7 bits; GraphError if NNCF can't."""
    if find_spec("nncf") is None:
        raise GraphError("int8 was requested, but NNCF is not installed here: use the training image")
    import nncf
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

    # nncf.set_log_level is not used: it also sets the level of the logger's handlers, which may be someone else's.
    logging.getLogger("nncf").setLevel(logging.ERROR)
    fp32 = get_core().read_model(folder / "fp32.xml")
    rows = [model_inputs([row_of(window)], manifest.pad_id) for window in windows]
    try:
        with redirect_stdout(StringIO()):  # NNCF draws progress bars
            return nncf.quantize(
                fp32,
                nncf.Dataset([{name: inputs[name] for name in manifest.inputs} for inputs in rows]),
                subset_size=len(rows),
                model_type=nncf.ModelType.TRANSFORMER,
                target_device=nncf.TargetDevice.CPU,
                ignored_scope=nncf.IgnoredScope(names=heads(fp32)),
                advanced_parameters=AdvancedQuantizationParameters(
                    overflow_fix=OverflowFix.DISABLE if weight_bits == FULL_WEIGHT_BITS else OverflowFix.ENABLE
                ),
            )
    except Exception as error:  # from NNCF, OpenVINO or numpy
        raise GraphError(f"NNCF can't quantise {manifest.architecture} ({reason_of(error)})") from error


def heads(model: Any) -> list[str]:
    """The names of the last matrix products before each output. They stay float32, as they have very few weights."""
    names: set[str] = set()
    seen: set[str] = set()
    left = list(model.get_results())
    while left:
        for source in left.pop().input_values():
            node = source.get_node()
            name = node.get_friendly_name()
            if node.get_type_name() == "MatMul":
                names.add(name)
            elif name not in seen:
                seen.add(name)
                left.append(node)
    return sorted(names)


def _answers(
    engine: Engine, windows: Sequence[Window], examples: Sequence[Example], settings: WindowSettings, say: Say
) -> list[Span]:
    """The best span of each question; logs progress."""
    logits = []
    for part in range(_PARTS):
        first, last = (len(windows) * each // _PARTS for each in (part, part + 1))
        logits += logits_of_all(engine, windows[first:last])
        say(f"int8: {engine.info.precision} has answered {100 * (part + 1) // _PARTS} % of {len(examples)} questions")
    contexts = [example.context for example in examples]
    spans = predict(windows, [row.start for row in logits], [row.end for row in logits], contexts, settings.decoding)
    return [best[0] for best in spans]


def compare(answers: dict[str, list[Span]], examples: Sequence[Example], *, no_answer: bool) -> Comparison:
    """Compare the answers: precision → one span per example. `no_answer`: use the rules of SQuAD v2.0."""
    scores = {
        name: metrics.evaluate(
            {example.id: span.answer for example, span in zip(examples, spans, strict=True)},
            examples,
            version_2_with_negative=no_answer,
        )
        for name, spans in answers.items()
    }
    same = [(one.start, one.end) == (other.start, other.end) for one, other in zip(*answers.values(), strict=True)]
    return Comparison(
        questions=len(examples),
        fp32_exact_match=scores["fp32"]["exact_match"],
        fp32_f1=scores["fp32"]["f1"],
        int8_exact_match=scores["int8"]["exact_match"],
        int8_f1=scores["int8"]["f1"],
        same_answers=100 * sum(same) / len(same),
    )


def provide_graph(files: ModelFiles, target: Path, say: Say) -> None:
    """Ensure that `target` holds the model's graph: keep a valid one, else copy the model's own, else make it."""
    hashes = graph.hash_sources(files.folder)
    for folder in (target, files.folder / FOLDER):
        if not folder.is_dir():
            continue
        try:
            manifest = read_manifest(folder)
            fault = graph.fault_of(folder, manifest, openvino.__version__)
            if not (fault := fault or graph.other_sources(folder, manifest, hashes)):
                if folder != target:
                    shutil.copytree(folder, target)
                return
        except GraphError as error:
            fault = str(error)
        say(f"int8: {fault}: it is not used")
    say("int8: making the model's fp32 graph first")
    graph.make(files.folder, target)


def _read_decoding(text: str) -> Decoding:
    return Decoding(**json.loads(text))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quantize", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--calibration", type=Path, required=True, help="SQuAD data to calibrate with")
    parser.add_argument("--validation", type=Path, help="SQuAD data to measure on (default: rest of --calibration)")
    parser.add_argument("--max-length", type=int, default=384)
    parser.add_argument("--stride", type=int, default=128)
    parser.add_argument("--decoding", type=_read_decoding, default=EVALUATION, help="fields of Decoding in JSON")
    parser.add_argument("--max-f1-loss", type=float, default=Limits().max_f1_loss)
    parser.add_argument("--few-questions", action="store_true")
    return parser.parse_args(arguments)


def questions_of(calibration: Path, validation: Path | None, say: Say) -> CalibrationData:
    """Read the data; without `validation`, measure on the questions that calibration does not use. Raises DataError."""
    examples = read(calibration, version_2_with_negative=True)
    if validation is not None:
        return CalibrationData(examples, read(validation, version_2_with_negative=True))
    calibrating = sample(examples, CALIBRATION_QUESTIONS)
    used = {example.id for example in calibrating}
    say(f"int8: {len(calibrating)} of {len(examples)} questions calibrate; the loss is measured on the others")
    return CalibrationData(calibrating, [example for example in examples if example.id not in used])


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Quantise; progress goes to stdout, an error is one sentence on stderr with exit code 1."""
    options = _parse(arguments)
    limits = Limits(options.max_f1_loss, options.few_questions)

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        questions = questions_of(options.calibration, options.validation, say)
        if reason := too_few(len(questions.validation), limits):
            raise GraphError(reason)
        without_answer = any(not example.answers for example in questions.validation)
        decoding = replace(options.decoding, no_answer=options.decoding.no_answer or without_answer)
        provide_graph(find(options.model), options.target, say)
        settings = WindowSettings(options.max_length, options.stride, decoding)
        add_int8(options.target, questions, settings, limits, say)
    except (GraphError, ModelFilesError, DataError, WindowError, LogitsError) as error:
        print(f"berth: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"berth: error: {options.target} can't be written ({error.strerror or error})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # skips the second that OpenVINO takes to shut down
