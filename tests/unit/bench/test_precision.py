"""The cost of 16-bit arithmetic: the verdict, and a measurement of a tiny model."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import precision
from bench.precision import PrecisionResult, loses_too_much, render
from berth.qa.spans import Span
from berth.runtime.engines.quantization import MAX_F1_LOSS
from tests.unit.small_models import save_tiny_model

SPANS = [Span(1.0, 0, 4, "Anna"), Span(1.0, 5, 8, "Ben")]
FULL = PrecisionResult("fp32 on a GPU", SPANS, 60.0, 70.0)


@pytest.mark.parametrize(("f1", "too_much"), [(70.5, False), (70.0 - MAX_F1_LOSS, False), (69.4, True)])
def test_more_than_the_allowed_f1_loss_is_too_much(f1: float, too_much: bool) -> None:
    less = replace(FULL, engine="bf16 on a GPU", f1=f1)
    assert loses_too_much(FULL, less) == too_much
    lines = render(FULL, less)
    assert f"| bf16 on a GPU | 60.00 | {f1:.2f} | 100.00 % |" in lines
    assert ("serve fp32" in lines[-1]) == too_much


@pytest.mark.nightly
def test_measurement_of_tiny_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTH_SQUAD", raising=False)
    save_tiny_model(tmp_path)
    code = precision.main(["--model", str(tmp_path), "--questions", "20"])
    page = capsys.readouterr().out
    assert "bf16 on cpu |" in page
    assert "20 questions of squad-heldout.json.xz" in page
    assert code == ("serve fp32" in page)
