"""The OpenVINO engine: logits equal to PyTorch's, only valid graphs of the model, the requested properties."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino
import pytest

from berth.qa.spans import SERVING, Span, predict
from berth.qa.squad import read
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import make_windows
from berth.runtime.engines import choose, convert, graph
from berth.runtime.engines import openvino as engines
from berth.runtime.engines.engine import Engine, WindowTokens, logits_of_all
from berth.runtime.engines.graph import FOLDER, GraphError, GraphManifest, read_manifest
from berth.runtime.engines.model_folder import ModelFilesError, find
from berth.runtime.engines.openvino import OpenVINOEngine, padded_length, properties
from berth.runtime.engines.pytorch import PyTorchEngine

pytestmark = pytest.mark.slow

PAIRS = [
    ("What is it used with?", f"This model is used with sagemaker for inference {n} times. " * n) for n in range(9)
]


@pytest.fixture(scope="session")
def converted(minilm_model: Path) -> tuple[Path, GraphManifest]:
    """The folder of MiniLM's graph, and its manifest."""
    folder = minilm_model.parent / "graph"
    return folder, convert.convert(find(minilm_model), folder)


@pytest.fixture(scope="session")
def engine(converted: tuple[Path, GraphManifest]) -> OpenVINOEngine:
    return OpenVINOEngine(*converted, "fp32", 2)


@pytest.fixture
def model(minilm_model: Path, converted: tuple[Path, GraphManifest], tmp_path: Path) -> Path:
    """A copy of the model with its graph inside, for a test to damage."""
    shutil.copytree(minilm_model, tmp_path / "model")
    shutil.copytree(converted[0], tmp_path / "model" / FOLDER)
    return tmp_path / "model"


def load(model: Path, **settings: str) -> tuple[choose.LoadedModel, list[str]]:
    lines: list[str] = []
    environment = {choose.FOLDER_VARIABLE: str(model.parent / "kept"), **settings}
    return choose.load(model, choose.settings(environment, 1, cuda=False), lines.append), lines


def test_logits_equal_those_of_pytorch(
    engine: OpenVINOEngine, minilm_model: Path, converted: tuple[Path, GraphManifest]
) -> None:
    tokenizer = PairTokenizer.from_json((converted[0] / "tokenizer.json").read_text())
    windows = make_windows(tokenizer, PAIRS)
    assert len({len(window.input_ids) for window in windows}) > 5
    theirs = logits_of_all(PyTorchEngine(find(minilm_model), 2), windows)
    for mine, other in zip(logits_of_all(engine, windows), theirs, strict=True):
        np.testing.assert_allclose(mine.start, other.start, atol=1e-4)
        np.testing.assert_allclose(mine.end, other.end, atol=1e-4)


@pytest.mark.nightly
def test_spans_of_real_questions_equal_those_of_pytorch(
    engine: OpenVINOEngine, minilm_model: Path, converted: tuple[Path, GraphManifest], sample: Path
) -> None:
    """With a head of random weights many spans have nearly equal scores, so small errors change their order."""
    tokenizer = PairTokenizer.from_json((converted[0] / "tokenizer.json").read_text())
    examples = read(sample / "squad-heldout.json.xz")
    assert len(examples) >= 500
    windows = make_windows(tokenizer, examples)
    contexts = [example.context for example in examples]

    def best(engine: Engine) -> list[Span]:
        logits = logits_of_all(engine, windows)
        spans = predict(windows, [row.start for row in logits], [row.end for row in logits], contexts, SERVING)
        return [ranked[0] for ranked in spans]

    mine, theirs = best(engine), best(PyTorchEngine(find(minilm_model), 2))
    assert [(span.start, span.end) for span in mine] == [(span.start, span.end) for span in theirs]
    np.testing.assert_allclose([span.score for span in mine], [span.score for span in theirs], atol=1e-4)


def test_logits_do_not_depend_on_the_batch_or_the_threads(engine: OpenVINOEngine) -> None:
    rows = [
        WindowTokens(np.arange(5, 5 + length, dtype=np.int32), np.zeros(length, np.int32))
        for length in (40, 41, 39, 40)
    ]
    alone = [engine.logits([row], alone=True)[0] for row in rows]
    for together in (engine.logits(rows), engine.logits(rows, alone=True)):
        for one, other in zip(alone, together, strict=True):
            assert one.start.shape == other.start.shape
            np.testing.assert_allclose(one.start, other.start, atol=1e-5)


@pytest.mark.parametrize(("longest", "most", "length"), [(1, 512, 16), (16, 512, 16), (17, 512, 32), (97, 100, 100)])
def test_padded_length(longest: int, most: int, length: int) -> None:
    assert padded_length(longest, most) == length


@pytest.mark.parametrize(("threads", "streams"), [(1, 1), (2, 1), (2, 2)])
def test_compiled_model_has_requested_properties(
    converted: tuple[Path, GraphManifest], threads: int, streams: int
) -> None:
    requested = properties("fp32", threads, streams)
    compiled = engines.get_core().compile_model(converted[0] / "fp32.xml", "CPU", requested)
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32
    assert compiled.get_property("INFERENCE_NUM_THREADS") == threads
    assert compiled.get_property("NUM_STREAMS") == streams
    assert compiled.get_property("ENABLE_CPU_PINNING") is False


def test_fp32_graph_has_float32_weights(converted: tuple[Path, GraphManifest]) -> None:
    model = engines.get_core().read_model(converted[0] / "fp32.xml")
    kinds = {op.get_output_element_type(0) for op in model.get_ops() if op.get_type_name() == "Constant"}
    assert openvino.Type.f32 in kinds
    assert not kinds & {openvino.Type.f16, openvino.Type.bf16}


SIGNAL_AFTER_TWO_ENGINES = """
import signal, sys
from pathlib import Path
from berth.runtime.engines.graph import read_manifest
from berth.runtime.engines.openvino import OpenVINOEngine

folder = Path(sys.argv[1])
first, second = [OpenVINOEngine(folder, read_manifest(folder), "fp32", 1) for _ in range(2)]
del first
del second
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
signal.raise_signal(signal.SIGTERM)
"""


def test_signal_is_handled_after_engines_were_deleted(converted: tuple[Path, GraphManifest]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SIGNAL_AFTER_TWO_ENGINES, converted[0]], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "handled\n", "")


def test_loading_graph_does_not_import_torch(model: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from berth.runtime.engines import choose\n"
        "loaded = choose.load(Path(sys.argv[1]), choose.settings({}, 1, cuda=False), print)\n"
        "print(loaded.engine.info.description, sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, model], capture_output=True, text=True, check=True)
    version = openvino.__version__.split("-")[0]
    assert done.stdout == f"OpenVINO {version}, BertForQuestionAnswering, fp32 on 1 threads []\n"


def test_missing_graph_is_made_outside_model_folder(minilm_model: Path, tmp_path: Path) -> None:
    shutil.copytree(minilm_model, tmp_path / "model")
    before = sorted((tmp_path / "model").rglob("*"))
    loaded, lines = load(tmp_path / "model")
    assert loaded.engine.info.precision == "fp32"
    assert lines == [
        f"{tmp_path}/model has no graph for OpenVINO: making one takes some seconds, at each start of a container"
    ]
    assert sorted((tmp_path / "model").rglob("*")) == before
    assert load(tmp_path / "model")[1] == []


def change_weights(model: Path) -> None:
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")


def mark_as_newer(model: Path) -> None:
    manifest = read_manifest(model / FOLDER)
    graph.write_manifest(model / FOLDER, replace(manifest, openvino="2031.1.0"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "other weights": (change_weights, "was made from a model.safetensors that differs from the model's"),
    "other tokenizer": (
        lambda model: (model / "vocab.txt").write_text("a\n"),
        "was made from a vocab.txt that differs from the model's",
    ),
    "newer OpenVINO": (mark_as_newer, "was made by OpenVINO 2031.1.0, which is newer than this image's "),
    "missing weights": (lambda model: (model / FOLDER / "fp32.bin").unlink(), "lacks fp32.bin"),
    "invalid graph": (lambda model: (model / FOLDER / "fp32.xml").write_text("<net"), "OpenVINO can't load "),
    "missing manifest": (lambda model: (model / FOLDER / "graph.json").unlink(), "graph.json can't be read"),
    "other format": (
        lambda model: (model / FOLDER / "graph.json").write_text('{"format": 9}'),
        "graph.json is of format 9, and this kit reads 1",
    ),
    "invalid tokenizer": (lambda model: (model / FOLDER / "tokenizer.json").write_text("{}"), "the tokenizer in "),
}


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_or_foreign_graph_is_not_used(
    model: Path, damage: Callable[[Path], object], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert_nothing(source: Path, target: Path) -> None:
        raise GraphError(f"made again from {source.name}")

    monkeypatch.setattr(graph, "make", convert_nothing)
    damage(model)
    loaded, lines = load(model)
    assert len(lines) == 3
    assert sentence in lines[0]
    assert lines[0].endswith(": it is not used")
    assert lines[2] == "using PyTorch instead of OpenVINO: made again from model"
    assert loaded.engine.info.description.startswith("PyTorch ")


@pytest.mark.parametrize(
    ("precision", "sentence"),
    [
        (
            "int8",
            "int8 was requested, but {} has no such graph: add one with `python build.py quantize`, or unset "
            "BERTH_PRECISION",
        ),
        ("fp64", "BERTH_PRECISION is `fp64`: it must be one of fp32, bf16, fp16, int8"),
        ("fp16", "BERTH_PRECISION is fp16, which is for GPUs: use bf16, or leave it out"),
    ],
)
def test_unavailable_precision(model: Path, precision: str, sentence: str) -> None:
    with pytest.raises(ModelFilesError) as refused:
        load(model, BERTH_PRECISION=precision)
    assert str(refused.value) == sentence.format(model)


@pytest.mark.parametrize("supported", [True, False])
def test_bf16_needs_cpu_support(model: Path, supported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "has_bf16", lambda: supported)
    if supported:
        assert load(model, BERTH_PRECISION="bf16")[0].engine.info.precision == "bf16"
        return
    with pytest.raises(ModelFilesError, match="bf16 was requested, but this CPU does not support it: use"):
        load(model, BERTH_PRECISION="bf16")


def test_precision_of_manifest_is_default(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "has_bf16", lambda: True)
    manifest = read_manifest(model / FOLDER)
    graph.write_manifest(model / FOLDER, replace(manifest, precision="bf16"))
    assert load(model)[0].engine.info.precision == "bf16"
    assert load(model, BERTH_PRECISION="fp32")[0].engine.info.precision == "fp32"


def test_convert_reports_unusable_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert convert.main([str(tmp_path), str(tmp_path / "graph")]) == graph.NO_MODEL
    assert capsys.readouterr().err.startswith(f"{tmp_path} has no weights")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json"]
