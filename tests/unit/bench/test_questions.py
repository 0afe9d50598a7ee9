"""The list of requests: the same for a seed, one in twenty with a long context, each with a question that fits."""

from pathlib import Path
from typing import Any

import pytest

from bench.serving import questions
from berth.common.errors import UserError


def article(number: int, paragraphs: int, characters: int) -> dict[str, Any]:
    """Its texts say which they are."""
    return {
        "paragraphs": [
            {
                "context": f"context {number}.{index} ".ljust(characters, "x"),
                "qas": [{"question": f"question {number}.{index}.{each}"} for each in range(3)],
            }
            for index in range(paragraphs)
        ]
    }


ARTICLES = [article(number, 30, 900) for number in range(5)]


def paragraph_of(question: str) -> str:
    number, index, _ = question.removeprefix("question ").split(".")
    return str(ARTICLES[int(number)]["paragraphs"][int(index)]["context"])


def test_one_request_in_twenty_is_long() -> None:
    asked = questions.make_requests(ARTICLES, 400, seed=1)
    long = [each for each in asked if len(each.context) > 900]
    assert (len(asked), len(long)) == (400, 20)
    assert [asked.index(each) for each in long] != list(range(20)), "all over the list"
    for each in long:
        assert 8000 - 901 < len(each.context) <= 8000
        first = each.question.removeprefix("question ")[0]
        assert each.context.startswith(f"context {first}.0 ")
    assert all(paragraph_of(each.question) in each.context for each in asked)
    assert all(each.context == paragraph_of(each.question) for each in asked if each not in long)
    assert len({each.context for each in asked}) > 100


def test_a_seed_gives_its_list() -> None:
    asked = questions.make_requests(ARTICLES, 50, seed=1)
    assert asked == questions.make_requests(ARTICLES, 50, seed=1)
    assert asked != questions.make_requests(ARTICLES, 50, seed=2)


def test_a_paragraph_that_is_too_long_alone_stays_whole() -> None:
    asked = questions.make_requests([article(0, 2, 9000)], 20, seed=1)
    assert {len(each.context) for each in asked} == {9000}


def test_the_data_is_squads_or_the_excerpt(tmp_path: Path) -> None:
    excerpt = questions.squad_file({})
    assert excerpt.name == "squad-heldout.json.xz"
    asked = questions.make_requests(questions.read_articles(excerpt), 40, seed=1)
    assert sum(len(each.context) > 4000 for each in asked) == 2
    with pytest.raises(UserError, match=r"let BERTH_SQUAD name a folder with dev-v1\.1\.json\.xz"):
        questions.squad_file({"BERTH_SQUAD": str(tmp_path)})
    (tmp_path / "dev-v1.1.json.xz").touch()
    assert questions.squad_file({"BERTH_SQUAD": str(tmp_path)}) == tmp_path / "dev-v1.1.json.xz"
