"""The list of requests from SQuAD: reproducible, one in twenty long, each question fits its context."""

from pathlib import Path
from typing import Any

import pytest

from bench import squad
from bench.serving import questions
from berth.common.errors import UserError


def article(number: int, paragraphs: int, characters: int) -> dict[str, Any]:
    """An article whose texts contain its number and the paragraph's."""
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
    requests = questions.make_requests(ARTICLES, 400, seed=1)
    long = [each for each in requests if len(each.context) > 900]
    assert (len(requests), len(long)) == (400, 20)
    assert [requests.index(each) for each in long] != list(range(20)), "long requests must be spread over the list"
    for each in long:
        assert 8000 - 901 < len(each.context) <= 8000
        first = each.question.removeprefix("question ")[0]
        assert each.context.startswith(f"context {first}.0 ")
    assert all(paragraph_of(each.question) in each.context for each in requests)
    assert all(each.context == paragraph_of(each.question) for each in requests if each not in long)
    assert len({each.context for each in requests}) > 100


def test_seed_determines_requests() -> None:
    requests = questions.make_requests(ARTICLES, 50, seed=1)
    assert requests == questions.make_requests(ARTICLES, 50, seed=1)
    assert requests != questions.make_requests(ARTICLES, 50, seed=2)


def test_single_long_paragraph_is_not_cut() -> None:
    requests = questions.make_requests([article(0, 2, 9000)], 20, seed=1)
    assert {len(each.context) for each in requests} == {9000}


def test_squad_file_is_in_berth_squad_or_the_excerpt(tmp_path: Path) -> None:
    excerpt = squad.squad_file("heldout", {})
    assert excerpt.name == "squad-heldout.json.xz"
    requests = questions.make_requests(squad.read_articles(excerpt), 40, seed=1)
    assert sum(len(each.context) > 4000 for each in requests) == 2
    with pytest.raises(UserError, match=r"set BERTH_SQUAD to a folder with dev-v1\.1\.json\.xz"):
        squad.squad_file("heldout", {"BERTH_SQUAD": str(tmp_path)})
    (tmp_path / "dev-v1.1.json.xz").touch()
    assert squad.squad_file("heldout", {"BERTH_SQUAD": str(tmp_path)}) == tmp_path / "dev-v1.1.json.xz"
