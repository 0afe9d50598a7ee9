"""A seeded list of requests made of SQuAD: one paragraph and one of its questions, and now and then a long context."""

import json
import lzma
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.common.errors import UserError
from berth.images.pins import pins

LONG_SHARE = 0.05
LONG_CHARACTERS = 8_000
_FILE = "dev-v1.1.json.xz"
_JOINT = "\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the context in which its answer is looked for."""

    question: str
    context: str

    @property
    def body(self) -> bytes:
        """As a client sends it to /invocations."""
        return json.dumps({"inputs": {"question": self.question, "context": self.context}}).encode()


def squad_file(environ: Mapping[str, str]) -> Path:
    """SQuAD's dev-v1.1 in the folder BERTH_SQUAD, else the embedded excerpt; UserError if the folder has none."""
    folder = environ.get("BERTH_SQUAD")
    if not folder:
        return pins.ROOT / "sample" / "squad-heldout.json.xz"
    path = Path(folder) / _FILE
    if not path.is_file():
        raise UserError(f"there is no {path}: let BERTH_SQUAD name a folder with {_FILE}, or unset it for the excerpt.")
    return path


def read_articles(path: Path) -> list[Any]:
    """The articles of a file in SQuAD's layout."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        articles: list[Any] = json.load(file)["data"]
    return articles


def make_requests(articles: Sequence[Any], count: int, seed: int) -> list[Asked]:
    """`count` requests, the same for the same seed, of which LONG_SHARE are long.

    A short one is a paragraph with one of its questions, each question of the file as likely as any other; a long one
    an article from its first paragraph on, LONG_CHARACTERS at most, with a question of one of these paragraphs.
    """
    chance = random.Random(seed)
    pairs = [
        Asked(question["question"], paragraph["context"])
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    long = [number < round(count * LONG_SHARE) for number in range(count)]
    chance.shuffle(long)
    return [_long(chance.choice(articles), chance) if each else chance.choice(pairs) for each in long]


def _long(article: Any, chance: random.Random) -> Asked:
    paragraphs = article["paragraphs"]
    taken = paragraphs[:1]
    for paragraph in paragraphs[1:]:
        if len(_joined([*taken, paragraph])) > LONG_CHARACTERS:
            break
        taken.append(paragraph)
    questions = [question["question"] for paragraph in taken for question in paragraph["qas"]]
    return Asked(chance.choice(questions), _joined(taken))


def _joined(paragraphs: Sequence[Any]) -> str:
    return _JOINT.join(paragraph["context"] for paragraph in paragraphs)


def from_environment(count: int, seed: int) -> tuple[str, list[Asked]]:
    """The name of the file that this machine has, and requests of it."""
    path = squad_file(os.environ)
    return path.name, make_requests(read_articles(path), count, seed)
