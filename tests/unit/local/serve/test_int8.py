"""`build.py quantize`: errors before the start, the container that it starts, and the archive that it writes."""

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from berth.common.errors import UserError
from berth.local import cleanup, commands
from berth.local.serve import int8
from berth.local.serve.int8 import Quantization, find_data, quantize_model
from tests.unit.local.train.ending_engine import EndingEngine
from tests.unit.small_models import save_tiny_model

IMAGE = "berth-train:cpu"


class Engine(EndingEngine):
    """An engine whose container writes a graph of two files if its exit code is 0."""

    def __init__(self) -> None:
        super().__init__(self._leave)
        self.copied = False

    def _leave(self, mounts: dict[str, Path]) -> None:
        data = next(path for target, path in mounts.items() if "/calibration" in target)
        self.copied = any(path.is_file() and not path.is_symlink() for path in data.glob("*.json"))
        if self.code == 0:
            (mounts["/opt/ml/output"] / "openvino").mkdir()
            for name in ("fp32.bin", "int8.bin"):
                (mounts["/opt/ml/output"] / "openvino" / name).write_text(name)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Engine]:
    made = Engine()
    monkeypatch.setattr(int8, "connect", lambda: made.client)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(cleanup, "scratch_root", lambda: tmp_path / "scratch")
    yield made
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.fixture
def quantization(tmp_path: Path) -> Quantization:
    """A model with an earlier graph, and a file to calibrate with."""
    save_tiny_model(tmp_path / "model")
    (tmp_path / "model/openvino").mkdir()
    (tmp_path / "model/openvino/old.bin").write_text("of other weights")
    (tmp_path / "data.json").write_text("{}")
    return Quantization(tmp_path / "model", tmp_path / "data.json", None, tmp_path / "out" / "model.tar.gz")


def test_quantize_mounts_the_model_read_only_and_packs_the_new_graph(
    engine: Engine, quantization: Quantization
) -> None:
    engine.printed = b"int8: on 500 questions\n"
    logged: list[str] = []
    assert quantize_model(quantization, IMAGE, log=logged.append, say=str) == quantization.output
    assert logged == ["int8: on 500 questions"]
    (made,) = engine.created
    assert [*made["entrypoint"], *made["command"]] == [
        *("python", "-P", "-m", "berth.runtime.engines.quantize", "/opt/ml/model", "/opt/ml/output/openvino"),
        *("--calibration", "/opt/ml/input/data/calibration/data.json", "--max-f1-loss=0.5"),
    ]
    assert made["network_mode"] == "none"
    assert [mount["Target"] for mount in made["mounts"] if not mount["ReadOnly"]] == ["/opt/ml/output"]
    with tarfile.open(quantization.output) as packed:
        names = packed.getnames()
        assert packed.extractfile("openvino/int8.bin").read() == b"int8.bin"  # type: ignore[union-attr]
    assert {"config.json", "model.safetensors", "tokenizer.json", "openvino/fp32.bin"} < set(names)
    assert "openvino/old.bin" not in names
    assert sorted(path.name for path in quantization.output.parent.iterdir()) == ["model.tar.gz"]


def test_linked_data_is_copied_for_the_container(engine: Engine, quantization: Quantization, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "data.json").rename(tmp_path / "cache/ab12")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/data.json").symlink_to("../cache/ab12")
    quantize_model(replace(quantization, calibration=tmp_path / "linked"), IMAGE, log=str, say=str)
    assert engine.copied


def test_quantize_passes_options_to_the_container(engine: Engine, quantization: Quantization, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "out.jsonl").write_text("{}")
    more = Quantization(
        quantization.model, quantization.calibration, tmp_path / "held", quantization.output, 2.5, few_questions=True
    )
    quantize_model(more, IMAGE, log=print, say=str)
    (made,) = engine.created
    assert made["command"][4:] == [
        *("--validation", "/opt/ml/input/data/validation", "--max-f1-loss=2.5", "--few-questions")
    ]


def test_container_error_is_reported_and_the_earlier_archive_is_kept(
    engine: Engine, quantization: Quantization
) -> None:
    quantization.output.parent.mkdir()
    quantization.output.write_text("of an earlier run")
    engine.code = 1
    engine.printed = b"int8: on 500 questions\nberth: error: the int8 graph loses 3.00 F1\n"
    logged: list[str] = []
    with pytest.raises(UserError, match=r"^the int8 graph loses 3\.00 F1\.$"):
        quantize_model(quantization, IMAGE, log=logged.append, say=str)
    assert logged == ["int8: on 500 questions"]
    assert quantization.output.read_text() == "of an earlier run"


def test_exit_code_is_reported_if_the_container_prints_no_error(engine: Engine, quantization: Quantization) -> None:
    engine.code = 137
    with pytest.raises(UserError, match="the container ended with exit code 137"):
        quantize_model(quantization, IMAGE, log=print, say=str)


@pytest.mark.parametrize("limit", [-0.1, float("nan")])
def test_quantize_refuses_invalid_f1_limit(engine: Engine, quantization: Quantization, limit: float) -> None:
    wrong = Quantization(quantization.model, quantization.calibration, None, quantization.output, limit)
    with pytest.raises(UserError, match=r"--max-f1-loss is .* and must be at least 0"):
        quantize_model(wrong, IMAGE)
    assert engine.created == []


def test_quantize_refuses_folder_as_output(engine: Engine, quantization: Quantization) -> None:
    quantization.output.mkdir(parents=True)
    with pytest.raises(UserError, match=r"is a folder: give the archive's name"):
        quantize_model(quantization, IMAGE)


def test_find_data_uses_channels_train_and_validation(tmp_path: Path) -> None:
    for channel in ("train", "validation", "test"):
        (tmp_path / channel).mkdir()
        (tmp_path / channel / "a.json").write_text("{}")
    other = tmp_path / "test" / "a.json"
    assert find_data(tmp_path, None) == (tmp_path / "train", tmp_path / "validation")
    assert find_data(tmp_path, other) == (tmp_path / "train", other)
    assert find_data(other, None) == (other, None)
    (tmp_path / "validation" / "a.json").rename(tmp_path / "validation" / "a.csv")
    with pytest.raises(UserError, match="validation holds no data file"):
        find_data(tmp_path, None)
    (tmp_path / "train" / "a.json").unlink()
    (tmp_path / "train").rmdir()
    with pytest.raises(UserError, match="has no folder train: pass data to calibrate with"):
        find_data(tmp_path, None)


def test_default_output_is_int8_archive_next_to_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("{}")
    written: list[Path] = []
    for name in ("connect", "require_images", "select_image", "_say_other_build"):
        monkeypatch.setattr(commands, name, lambda *_: SimpleNamespace(name=IMAGE))
    monkeypatch.setattr(commands, "quantize_model", lambda quantization, *_, **__: written.append(quantization.output))
    commands.quantize(tmp_path / "model.tar.gz", tmp_path / "data.json")
    assert written == [tmp_path / "int8.tar.gz"]
