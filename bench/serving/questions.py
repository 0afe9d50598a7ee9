"""A reproducible list of requests from SQuAD: a paragraph with one of its questions; some have a long context."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench import squad

LONG_SHARE = 0.05
LONG_CHARACTERS = 8_000
_SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class Request:
    """A question and its context."""

    question: str
    context: str

    @property
    def body(self) -> bytes:
        """The JSON that a client sends to /invocations."""
        return json.dumps({"inputs": {"question": self.question, "context": self.context}}).encode()


def make_requests(articles: Sequence[Any], count: int, seed: int) -> list[Request]:
    """`count` requests, the same for the same seed; LONG_SHARE of them are long.

    A short request is a paragraph with one of its questions; all questions of the file are equally likely. A long one
    is the beginning of an article, at most LONG_CHARACTERS, with a question about one of its paragraphs.
    """
    chance = random.Random(seed)
    short = [Request(question["question"], context) for question, context in squad.pairs(articles)]
    long = [number < round(count * LONG_SHARE) for number in range(count)]
    chance.shuffle(long)
    return [_long_request(chance.choice(articles), chance) if each else chance.choice(short) for each in long]


def _long_request(article: Any, chance: random.Random) -> Request:
    paragraphs = article["paragraphs"]
    taken = paragraphs[:1]
    for paragraph in paragraphs[1:]:
        if len(_joined([*taken, paragraph])) > LONG_CHARACTERS:
            break
        taken.append(paragraph)
    questions = [question["question"] for paragraph in taken for question in paragraph["qas"]]
    return Request(chance.choice(questions), _joined(taken))


def _joined(paragraphs: Sequence[Any]) -> str:
    return _SEPARATOR.join(paragraph["context"] for paragraph in paragraphs)


def from_environment(count: int, seed: int) -> tuple[str, list[Request]]:
    """The name of SQuAD's file, and requests from it."""
    path = squad.squad_file("heldout")
    return path.name, make_requests(squad.read_articles(path), count, seed)
