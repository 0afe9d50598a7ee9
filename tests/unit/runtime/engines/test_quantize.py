"""The int8 graph: its loss is limited, it computes in int8, and a refused one is deleted."""

import json
import logging
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino
import pytest

from berth.qa.spans import EVALUATION, Span
from berth.qa.squad import Answer, Example
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import make_windows
from berth.runtime.engines import choose, quantization, quantize
from berth.runtime.engines.engine import logits_of_all
from berth.runtime.engines.graph import FOLDER, GraphError, read_manifest
from berth.runtime.engines.model_folder import ModelFilesError
from berth.runtime.engines.openvino import OpenVINOEngine, get_core
from berth.runtime.engines.quantization import CalibrationData, Comparison, Limits, WindowSettings, refusal, too_few

SAME = Comparison(500, fp32_exact_match=70, fp32_f1=80, int8_exact_match=70, int8_f1=80, same_answers=99)
ANY = Limits(max_f1_loss=100, few_questions=True)
SETTINGS = WindowSettings(max_length=64, stride=16, decoding=EVALUATION)
EXAMPLES = [
    Example(f"q{n}", "which number", f"it is {n} of the ten that are here " * (n % 4 + 1), (Answer(str(n), 6),))
    for n in range(12)
]
QUESTIONS = CalibrationData(EXAMPLES[:8], EXAMPLES[8:])


@pytest.fixture
def model(tiny_model_with_graph: Path, tmp_path: Path) -> Path:
    """A copy for a test to change."""
    return Path(shutil.copytree(tiny_model_with_graph, tmp_path / "model"))


@pytest.fixture(scope="module")
def quantised(tiny_model_with_graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tiny model with an fp32 and an int8 graph."""
    folder = Path(shutil.copytree(tiny_model_with_graph, tmp_path_factory.mktemp("quantised") / "model"))
    quantize.add_int8(folder / FOLDER, QUESTIONS, SETTINGS, ANY, print)
    return folder


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("comparison", "limits", "sentence"),
    [
        (SAME, Limits(), ""),
        (replace(SAME, int8_f1=79.5), Limits(), ""),
        (replace(SAME, int8_f1=79.49), Limits(), "the int8 graph loses 0.51 F1, more than 0.5, and is not kept ("),
        (replace(SAME, int8_f1=79.49), Limits(max_f1_loss=0.6), ""),
        (replace(SAME, int8_f1=90), Limits(max_f1_loss=0), ""),
    ],
)
def test_refusal_depends_on_f1_loss(comparison: Comparison, limits: Limits, sentence: str) -> None:
    reason = refusal(comparison, limits)
    assert reason.startswith(sentence)
    assert bool(reason) == bool(sentence)


def test_number_of_questions_that_is_too_small() -> None:
    assert too_few(0, ANY) == ("int8 was requested, but there is no question to measure its loss: pass validation data")
    assert too_few(499, Limits()).startswith("int8 was requested, but there are only 499 questions to ")
    assert too_few(499, ANY) == too_few(500, Limits()) == ""


def test_compare_scores_answers() -> None:
    """Four questions, scored by hand: fp32 answers all; int8 has a partial answer (F1 2/3), a wrong one, and a right
    one at another place.
    """
    text = "ann met bob smith"
    golds = [("ann", 0), ("bob smith", 8), ("bob", 8), ("met", 4)]
    examples = [Example(str(n), "who", text, (Answer(*gold),)) for n, gold in enumerate(golds)]
    right = [Span(1, start, start + len(gold), gold) for gold, start in golds]
    other = [right[0], Span(1, 8, 11, "bob"), Span(1, 12, 17, "smith"), Span(1, 3, 7, "met")]
    comparison = quantize.compare({"fp32": right, "int8": other}, examples, no_answer=False)
    assert comparison == Comparison(
        4, fp32_exact_match=100, fp32_f1=100, int8_exact_match=50, int8_f1=pytest.approx(200 / 3), same_answers=25
    )
    assert comparison.record() == {
        "questions": 4,
        "fp32_exact_match": 100,
        "fp32_f1": 100,
        "int8_exact_match": 50,
        "int8_f1": 66.6667,
        "same_answers": 25,
        "exact_match_loss": 50,
        "f1_loss": 33.3333,
    }
    assert comparison.sentence() == (
        "on 4 questions int8 has F1 66.67 where fp32 has 100.00 (33.33 lost), and exact match 50.00 where fp32 has "
        "100.00 (50.00 lost); 25.0 % of the answers are the same"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("vnni", "weight_bits"), [(True, 8), (False, 7)])
def test_int8_graph_has_int8_layers_and_float_head(
    model: Path, monkeypatch: pytest.MonkeyPatch, vnni: bool, weight_bits: int
) -> None:
    monkeypatch.setattr(quantize, "has_vnni", lambda: vnni)
    handler = logging.NullHandler()  # like pytest's, which it adds to loggers that do not propagate, such as NNCF's
    monkeypatch.setattr(logging.getLogger("nncf"), "handlers", [handler])
    lines: list[str] = []
    comparison = quantize.add_int8(model / FOLDER, QUESTIONS, SETTINGS, ANY, lines.append)
    assert handler.level == logging.NOTSET, "the level of other handlers must not change"
    manifest = read_manifest(model / FOLDER)
    assert manifest.precisions == {"fp32": {}, "int8": {**comparison.record(), "weight_bits": weight_bits}}
    assert manifest.precision == "fp32"
    assert lines[-1] == f"int8: {comparison.sentence()}"
    assert comparison.questions == len(QUESTIONS.validation)
    assert (model / FOLDER / "int8.bin").stat().st_size < (model / FOLDER / "fp32.bin").stat().st_size / 2
    graph = get_core().read_model(model / FOLDER / "int8.xml")
    quantised = [
        node
        for node in graph.get_ops()
        if node.get_type_name() == "MatMul"
        and all(ancestors(source.get_node()) & {"FakeQuantize", "i8"} for source in node.input_values())
    ]
    wide = [node for node in graph.get_ops() if is_int8(node) and abs(node.get_data().astype(int)).max() > 64]
    # Three embedding tables, which are no factor of a matrix product, always have 8 bits.
    assert len(wide) == (15 if weight_bits == 8 else 3)
    # Each of the two layers has six: query, key, value, the attention's output, and two of the feed-forward.
    assert len(quantised) == 12
    (head,) = quantize.heads(graph)
    assert head not in {node.get_friendly_name() for node in quantised}


def is_int8(node: openvino.Node) -> bool:
    return node.get_type_name() == "Constant" and node.get_output_element_type(0) == openvino.Type.i8


def ancestors(node: openvino.Node, depth: int = 4) -> set[str]:
    """Types of the node and of its inputs, up to `depth` steps back; for a constant the type of its numbers."""
    constant = node.get_type_name() == "Constant"
    names = {node.get_output_element_type(0).get_type_name() if constant else node.get_type_name()}
    if depth:
        for source in node.input_values():
            names |= ancestors(source.get_node(), depth - 1)
    return names


@pytest.mark.slow
def test_int8_logits_are_close_to_fp32(quantised: Path) -> None:
    manifest = read_manifest(quantised / FOLDER)
    tokenizer = PairTokenizer.from_json((quantised / FOLDER / "tokenizer.json").read_text())
    windows = make_windows(tokenizer, EXAMPLES, 64, 16)
    fp32, int8 = (
        np.concatenate([np.r_[row.start, row.end] for row in logits_of_all(engine, windows)])
        for engine in (OpenVINOEngine(quantised / FOLDER, manifest, name, 1) for name in ("fp32", "int8"))
    )
    assert not np.allclose(fp32, int8, atol=1e-3)
    assert np.corrcoef(fp32, int8)[0, 1] > 0.95


def test_int8_is_used_only_if_requested(quantised: Path) -> None:
    for environment, precision in (({}, "fp32"), ({"BERTH_PRECISION": "int8"}, "int8")):
        loaded = choose.load(quantised, choose.settings(environment, 1, cuda=False), print)
        assert loaded.engine.info.precision == precision
        assert f", {precision} on " in loaded.engine.info.description


@pytest.mark.slow
@pytest.mark.parametrize(("weight_bits", "precision"), [(8, None), (7, "int8")])
def test_8_bit_weights_need_vnni(
    model: Path, monkeypatch: pytest.MonkeyPatch, weight_bits: int, precision: str | None
) -> None:
    monkeypatch.setattr(quantize, "has_vnni", lambda: weight_bits == 8)
    quantize.add_int8(model / FOLDER, QUESTIONS, SETTINGS, ANY, print)
    monkeypatch.setattr(choose, "has_vnni", lambda: False)
    wanted = choose.settings({"BERTH_PRECISION": "int8"}, 1, cuda=False)
    if precision is None:
        with pytest.raises(ModelFilesError, match=r"is for CPUs with VNNI, which this one lacks, .* ml\.c6i"):
            choose.load(model, wanted, print)
    else:
        assert choose.load(model, wanted, print).engine.info.precision == precision


def test_refused_int8_graph_is_deleted(model: Path) -> None:
    before = listing(model / FOLDER)
    with pytest.raises(GraphError, match="the int8 graph loses "):
        quantize.add_int8(model / FOLDER, QUESTIONS, SETTINGS, replace(ANY, max_f1_loss=-101), print)
    assert listing(model / FOLDER) == before


@pytest.mark.slow
def test_interrupted_replacement_leaves_manifest_without_int8(quantised: Path, tmp_path: Path) -> None:
    """int8.bin can't be replaced here, so the state is as after a kill between the two files."""
    model = Path(shutil.copytree(quantised, tmp_path / "model"))
    (model / FOLDER / "int8.bin").unlink()
    (model / FOLDER / "int8.bin").mkdir()
    with pytest.raises(IsADirectoryError):
        quantize.add_int8(model / FOLDER, QUESTIONS, SETTINGS, ANY, print)
    assert list(read_manifest(model / FOLDER).precisions) == ["fp32"]


def test_nncf_error_is_reported(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nncf

    def refuse(*_: object, **__: object) -> None:
        raise nncf.UnsupportedModelError("not\nthis one")

    monkeypatch.setattr(nncf, "quantize", refuse)
    sentence = r"NNCF can't quantise BertForQuestionAnswering \(UnsupportedModelError: not\)"
    with pytest.raises(GraphError, match=sentence):
        quantize.add_int8(model / FOLDER, QUESTIONS, SETTINGS, ANY, print)


@pytest.mark.nightly
def test_add_int8_runs_in_child_process(model: Path) -> None:
    lines: list[str] = []
    quantization.add_int8(model, QUESTIONS, SETTINGS, ANY, lines.append)
    assert "int8" in read_manifest(model / FOLDER).precisions
    assert re.fullmatch(r"int8: NNCF quantises the graph with \d+ windows of the calibration data", lines[0])
    assert all(line.startswith("int8: ") for line in lines), "output of NNCF must not reach the log"
    with pytest.raises(GraphError, match="the int8 graph loses"):
        quantization.add_int8(model, QUESTIONS, SETTINGS, replace(ANY, max_f1_loss=-101), lines.append)


@pytest.mark.nightly
def test_quantize_makes_both_graphs_outside_model(tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    quantization.write_examples(tmp_path / "data.jsonl", EXAMPLES)
    words = [tmp_path / "model", tmp_path / "graph", "--calibration", tmp_path / "data.jsonl"]
    command = [sys.executable, "-P", "-m", "berth.runtime.engines.quantize", *map(str, words)]
    few = subprocess.run(command, capture_output=True, text=True)
    assert few.returncode == 1
    assert few.stderr.startswith("berth: error: int8 was requested, but there is no question to measure its loss")
    assert few.stderr.count("\n") == 1
    assert not (tmp_path / "graph").exists()
    extra = ["--validation", str(tmp_path / "data.jsonl"), "--few-questions", "--max-f1-loss=100", "--max-length=999"]
    enough = subprocess.run([*command, *extra], capture_output=True, text=True)
    assert (enough.returncode, enough.stderr) == (0, "")
    assert set(json.loads((tmp_path / "graph" / "graph.json").read_text())["precisions"]) == {"fp32", "int8"}
    assert not (tmp_path / "model" / FOLDER).exists()


def test_questions_of_calibration_are_not_measured(tmp_path: Path) -> None:
    many = [replace(EXAMPLES[n % 12], id=str(n)) for n in range(310)]
    quantization.write_examples(tmp_path / "data.jsonl", many)
    found = quantize.questions_of(tmp_path / "data.jsonl", None, print)
    assert (len(found.calibration), len(found.validation)) == (300, 10)
    assert not {each.id for each in found.calibration} & {each.id for each in found.validation}


@pytest.mark.parametrize("unanswerable", [False, True])
def test_loss_is_measured_with_no_answer_if_the_data_have_such_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unanswerable: bool
) -> None:
    measured: list[bool] = []
    monkeypatch.setattr(quantize, "find", lambda model: model)
    monkeypatch.setattr(quantize, "provide_graph", lambda *_: None)
    monkeypatch.setattr(quantize, "add_int8", lambda *words: measured.append(words[2].decoding.no_answer))
    examples = [*EXAMPLES, replace(EXAMPLES[0], id="none", answers=())] if unanswerable else EXAMPLES
    quantization.write_examples(tmp_path / "data.jsonl", examples)
    data = str(tmp_path / "data.jsonl")
    words = [str(tmp_path / "model"), str(tmp_path / "graph"), "--calibration", data, "--validation", data]
    assert quantize.main([*words, "--few-questions"]) == 0
    assert measured == [unanswerable]
