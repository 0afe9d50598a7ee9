"""The data that bench/large_data.py makes, and its page."""

import json
from pathlib import Path

from bench.large_data import Ran, copy_to, read_articles, render
from berth.qa.squad import read


def test_copies_have_ids_of_their_own(tmp_path: Path) -> None:
    answer = {"text": "Oslo", "answer_start": 0}
    questions = [{"answers": [answer], "question": 'what is "id": "x"?', "id": f"q{number}"} for number in range(3)]
    article = {"title": "Oslo", "paragraphs": [{"context": "Oslo is a city.", "qas": questions}]}
    (tmp_path / "one.json").write_text(json.dumps({"data": [article]}))
    copy_to(tmp_path / "many.json", read_articles(tmp_path / "one.json"), 5000)
    assert (tmp_path / "many.json").stat().st_size >= 5000
    found = read(tmp_path / "many.json")
    assert len(found) % 3 == 0
    assert {example.id.partition("-")[2] for example in found} == {"q0", "q1", "q2"}
    assert {example.question for example in found} == {'what is "id": "x"?'}


def test_the_page_has_the_figures() -> None:
    log = ["ranks: 1", "train data: 9 windows of up to 384 tokens", "step 1 of 2  loss: 1.0"]
    page = render("Title", "how", 4_000_000_000, Ran(log, 10.0, 20.0, 500_000_000, 3_000_000_000, 2_000_000_000))
    assert "| training data, one JSON file | 2000 MB |" in page
    assert "| most memory of its own | 500 MB |" in page
    assert "ranks: 1" not in page
    assert "\nstep 1 of 2  loss: 1.0\n" in page
