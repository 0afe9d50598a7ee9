"""Adds an int8 graph to a model: `python -m berth.runtime.engines.quantize MODEL TARGET --calibration PATH …`.

MODEL is a folder with a model of transformers, TARGET the folder of its graph (berth.runtime.engines.graph), which is
made where neither TARGET nor MODEL has one. NNCF makes weights and activations int8, by what the activations are over
windows of the calibration data; both graphs then answer the same questions, and what int8 loses is printed and kept in
the manifest. One that loses more than the limit is refused, and leaves nothing.
"""

import argparse
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openvino

from berth.qa import metrics
from berth.qa.spans import EVALUATION, LogitsError, Span, predict
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
"""Lines of progress of each graph's answers."""

Say = Callable[[str], None]


def add_int8(folder: Path, data: CalibrationData, settings: WindowSettings, limits: Limits, say: Say) -> Comparison:
    """Make the int8 graph in the folder of a graph, and write what it loses into the manifest.

    GraphError if it loses too much, or NNCF can't make it: the folder is then as it was. Raises WindowError and
    LogitsError as berth.qa does.
    """
    manifest = read_manifest(folder)
    tokenizer = PairTokenizer.from_json((folder / TOKENIZER).read_text("utf-8"))
    length = min(settings.max_length, manifest.max_length)
    if reason := too_few(len(data.validation), limits):
        raise GraphError(reason)
    asked = sample(data.validation, MOST_QUESTIONS)
    stride = settings.stride if settings.stride < length else length // 2
    shrink = Serving(shrink_stride=True)  # a job has refused what leaves no room for its stride, and a server takes it
    windows = make_windows(tokenizer, asked, length, stride, serving=shrink)
    shown = make_windows(tokenizer, sample(data.calibration, CALIBRATION_QUESTIONS), length, stride, serving=shrink)
    shown = random.Random(0).sample(shown, min(len(shown), CALIBRATION_QUESTIONS))
    with whole_files.scratch(folder / "int8") as part:
        say(f"int8: NNCF quantises the graph by {len(shown)} windows of the calibration data")
        # With 8 bits, what is measured on a CPU whose products overflow would be what nobody gets elsewhere.
        weight_bits = FULL_WEIGHT_BITS if has_vnni() else FULL_WEIGHT_BITS - 1
        int8 = quantised(folder, manifest, shown, weight_bits)
        openvino.save_model(int8, part / "int8.xml", compress_to_fp16=False)
        found = compare(
            {
                name: _answers(OpenVINOEngine(at, manifest, name, model_threads()), windows, asked, settings, say)
                for name, at in (("fp32", folder), ("int8", part))
            },
            asked,
            no_answer=settings.decoding.no_answer,
        )
        say(f"int8: {found.sentence()}")
        if reason := refusal(found, limits):
            raise GraphError(reason)
        others = {name: known for name, known in manifest.precisions.items() if name != "int8"}
        write_manifest(folder, replace(manifest, precisions=others))  # a kill between the two files is no int8 graph
        for name in ("int8.xml", "int8.bin"):
            (part / name).replace(folder / name)
    known = {**found.record(), "weight_bits": weight_bits}
    write_manifest(folder, replace(manifest, precisions={**others, "int8": known}))
    return found


def sample(examples: Sequence[Example], most: int) -> list[Example]:
    """At most so many of the examples, from all of them, the same at each call."""
    return random.Random(0).sample(list(examples), min(len(examples), most))


def quantised(folder: Path, manifest: GraphManifest, windows: Sequence[Window], weight_bits: int) -> Any:
    """The graph in `folder` with activations in int8 and weights of 8 or 7 bits; GraphError if NNCF can't."""
    if find_spec("nncf") is None:
        raise GraphError("int8 was asked for, and NNCF, which makes it, is not installed here: use the training image")
    import nncf
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

    # Not nncf.set_log_level: it also sets the level of every handler on the logger, which others may have added.
    logging.getLogger("nncf").setLevel(logging.ERROR)
    fp32 = get_core().read_model(folder / "fp32.xml")
    rows = [model_inputs([row_of(window)], manifest.pad_id) for window in windows]
    try:
        with _quiet():
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
    except Exception as error:  # NNCF's own, OpenVINO's and numpy's
        raise GraphError(f"NNCF can't quantise {manifest.architecture} ({reason_of(error)})") from error


def heads(model: Any) -> list[str]:
    """The names of the last matrix products before each output: so few weights that float32 costs nothing there."""
    found: set[str] = set()
    seen: set[str] = set()
    left = list(model.get_results())
    while left:
        for source in left.pop().input_values():
            node = source.get_node()
            name = node.get_friendly_name()
            if node.get_type_name() == "MatMul":
                found.add(name)
            elif name not in seen:
                seen.add(name)
                left.append(node)
    return sorted(found)


class _quiet:
    """Standard output to nowhere, where NNCF draws bars of progress."""

    def __enter__(self) -> None:
        sys.stdout.flush()
        self._kept = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        os.dup2(self._kept, 1)
        os.close(self._kept)


def _answers(
    engine: Engine, windows: Sequence[Window], examples: Sequence[Example], settings: WindowSettings, say: Say
) -> list[Span]:
    """The best span for each question."""
    logits = []
    for part in range(_PARTS):
        first, last = (len(windows) * each // _PARTS for each in (part, part + 1))
        logits += logits_of_all(engine, windows[first:last])
        say(f"int8: {engine.info.precision} has answered {100 * (part + 1) // _PARTS} % of {len(examples)} questions")
    contexts = [example.context for example in examples]
    spans = predict(windows, [row.start for row in logits], [row.end for row in logits], contexts, settings.decoding)
    return [best[0] for best in spans]


def compare(answers: dict[str, list[Span]], examples: Sequence[Example], *, no_answer: bool) -> Comparison:
    """The figures of the answers, precision → one for each example; `no_answer`: by the rules of SQuAD v2.0."""
    scores = {
        name: metrics.evaluate(
            {example.id: span.answer for example, span in zip(examples, spans, strict=True)},
            examples,
            version_2_with_negative=True if no_answer else None,
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
    """See that `target` is the folder of the model's graph: it is, or gets a copy of the model's own, or a new one."""
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
    say("int8: the model's graph is made first, in fp32")
    graph.make(files.folder, target)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quantize", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--calibration", type=Path, required=True, help="SQuAD data to calibrate with")
    parser.add_argument("--validation", type=Path, help="SQuAD data to measure on; else what calibration leaves of its")
    parser.add_argument("--max-length", type=int, default=384)
    parser.add_argument("--stride", type=int, default=128)
    parser.add_argument("--max-answer-tokens", type=int, default=EVALUATION.max_answer_tokens)
    parser.add_argument("--no-answer", action="store_true", help="answer as SQuAD v2.0, where the context may not say")
    parser.add_argument("--null-threshold", type=float, default=EVALUATION.null_threshold)
    parser.add_argument("--max-f1-loss", type=float, default=Limits().max_f1_loss)
    parser.add_argument("--few-questions", action="store_true")
    return parser.parse_args(arguments)


def questions_of(calibration: Path, validation: Path | None, say: Say) -> CalibrationData:
    """Read them; without data to measure on, those that don't calibrate. Raises DataError."""
    there = read(calibration, version_2_with_negative=True)
    if validation is not None:
        return CalibrationData(there, read(validation, version_2_with_negative=True))
    shown = sample(there, CALIBRATION_QUESTIONS)
    used = {example.id for example in shown}
    say(f"int8: {len(shown)} of {len(there)} questions calibrate, and the loss is measured on others")
    return CalibrationData(shown, [example for example in there if example.id not in used])


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Quantise; progress on standard output, a mistake as one sentence on standard error with exit code 1."""
    asked = _parse(arguments)
    limits = Limits(asked.max_f1_loss, asked.few_questions)

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        questions = questions_of(asked.calibration, asked.validation, say)
        if reason := too_few(len(questions.validation), limits):
            raise GraphError(reason)
        decoding = replace(
            EVALUATION,
            max_answer_tokens=asked.max_answer_tokens,
            null_threshold=asked.null_threshold,
            no_answer=asked.no_answer or any(not example.answers for example in questions.validation),
        )
        provide_graph(find(asked.model), asked.target, say)
        settings = WindowSettings(asked.max_length, asked.stride, decoding)
        add_int8(asked.target, questions, settings, limits, say)
    except (GraphError, ModelFilesError, DataError, WindowError, LogitsError) as error:
        print(f"berth: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"berth: error: {asked.target} can't be written ({error.strerror or error})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # OpenVINO takes a second to come down
