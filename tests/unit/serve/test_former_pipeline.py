"""Our answers against those of the pipeline that transformers 5.3 removed, recorded by `python -m bench.pipeline`."""

import json
from pathlib import Path

import pytest

from bench.pipeline import SETTINGS, Difference, cases, difference, our_answers
from tests.unit.small_models import add_graph, save_seeded_minilm

RECORDED = Path(__file__).with_name("former_pipeline.jsonl")


@pytest.mark.nightly
def test_answers_equal_those_of_the_former_pipeline(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_seeded_minilm(model)
    add_graph(model)
    all_recorded = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]
    all_cases = cases()
    differences_per_setting: list[list[Difference]] = [[] for _ in SETTINGS]
    for case, ours, recorded in zip(all_cases, our_answers(model, all_cases), all_recorded, strict=True):
        differences_per_setting[case.number].append(difference(ours, recorded))
    for (count, parameters), differences in zip(SETTINGS, differences_per_setting, strict=True):
        assert len(differences) == count
        other = [each for each in differences if not each.same or each.score > 1e-3]
        assert not other, parameters
