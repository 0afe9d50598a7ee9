"""The data of bench/large_data.py."""

import json
from pathlib import Path

from bench.large_data import copy_to, read_questions
from berth.qa.squad import read


def test_copied_questions_have_different_ids(tmp_path: Path) -> None:
    answer = {"text": "Oslo", "answer_start": 0}
    questions = [{"answers": [answer], "question": 'what is "id": "x"?', "id": f"q{number}"} for number in range(3)]
    article = {"title": "Oslo", "paragraphs": [{"context": "Oslo is a city.", "qas": questions}]}
    (tmp_path / "one.json").write_text(json.dumps({"data": [article]}))
    copy_to(tmp_path / "many.jsonl", read_questions(tmp_path / "one.json"), 5000)
    assert (tmp_path / "many.jsonl").stat().st_size >= 5000
    found = read(tmp_path / "many.jsonl")
    assert len(found) % 3 == 0
    assert {example.id.partition("-")[2] for example in found} == {"q0", "q1", "q2"}
    assert {example.question for example in found} == {'what is "id": "x"?'}
