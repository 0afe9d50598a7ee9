"""What 16-bit arithmetic costs: measured with the server's engine, and judged."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import precision
from bench.precision import Answered, loses_too_much, render, same_spans
from berth.qa.spans import Span
from berth.runtime.engines.quantization import MAX_F1_LOSS
from tests.unit.small_models import save_tiny_model

SPANS = [Span(1.0, 0, 4, "Anna"), Span(1.0, 5, 8, "Ben")]
FULL = Answered("fp32 on a GPU", SPANS, 60.0, 70.0)


@pytest.mark.parametrize(("f1", "too_much"), [(70.5, False), (70.0 - MAX_F1_LOSS, False), (69.4, True)])
def test_more_than_half_a_point_of_f1_is_too_much(f1: float, too_much: bool) -> None:
    less = replace(FULL, engine="bf16 on a GPU", f1=f1)
    assert loses_too_much(FULL, less) == too_much
    page = render("bf16", [], FULL, less)
    assert f"| bf16 on a GPU | 60.00 | {f1:.2f} | 100.00 % |" in page
    assert ("serve fp32" in page) == too_much


def test_same_spans_are_counted_by_their_places() -> None:
    assert same_spans(SPANS, [replace(SPANS[0], score=0.5), replace(SPANS[1], end=9)]) == 50.0


@pytest.mark.nightly
def test_a_model_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTH_SQUAD", raising=False)
    save_tiny_model(tmp_path)
    code = precision.main(["--model", str(tmp_path), "--questions", "20"])
    page = capsys.readouterr().out
    assert "bf16 on cpu |" in page
    assert "20 questions of squad-heldout.json.xz" in page
    assert code == ("serve fp32" in page)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        precision.main(["--model", str(tmp_path), "--questions", "2"])
    assert str(tmp_path) in str(ended.value)
