"""Makes the demo's data, an excerpt of SQuAD v1.1, from the full files: `python sample/make.py FOLDER`.

FOLDER holds train-v1.1.json.xz and dev-v1.1.json.xz in the official layout. Written next to this script, the same
bytes on every run (README.md has their checksums):

* squad-train.json.xz: 5,000 questions to fine-tune on in minutes on a CPU, so only contexts under 560 characters. The
  articles take turns, one context each, until there are enough. A context gives two questions, so that the model
  learns to read the question and not only to find what looks like an answer: the one of the rarest kind so far ("who",
  "where", "how", … rather than "what"), and the first of the others, which keeps most of SQuAD's own mixture.
* squad-heldout.json.xz: 528 questions to measure on, 11 from each of the 48 articles of the dev file (other articles
  than the training file's), evenly spread over the article, with contexts of any length. Nothing is chosen by content.
"""

import hashlib
import json
import lzma
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TRAIN_QUESTIONS = 5000
CONTEXT_LIMIT = 560
HELD_OUT_PER_ARTICLE = 11
KINDS = ("who", "where", "when", "which", "why", "how", "whose", "whom", "what")

Article = dict[str, Any]
Paragraph = dict[str, Any]


def kind(question: str) -> str:
    """The first question word in it, `other` without one."""
    words = question.lower().replace("?", " ").split()
    return next((word for word in words if word in KINDS), "other")


def train_excerpt(articles: list[Article]) -> list[Article]:
    """TRAIN_QUESTIONS questions; articles and contexts in their order, unused ones left out."""
    used: Counter[str] = Counter()
    chosen: list[list[Paragraph]] = [[] for _ in articles]
    waiting = [[p for p in article["paragraphs"] if len(p["context"]) < CONTEXT_LIMIT] for article in articles]
    total = 0
    while total < TRAIN_QUESTIONS and any(waiting):
        for paragraphs, picked in zip(waiting, chosen, strict=True):
            if not paragraphs or total == TRAIN_QUESTIONS:
                continue
            paragraph = paragraphs.pop(0)
            # Under three words are the crowd workers' slips: "k", "dd".
            questions = [question for question in paragraph["qas"] if len(question["question"].split()) > 2]
            if not questions:
                continue
            rarest = min(questions, key=lambda question: used[kind(question["question"])])
            others = [question for question in questions if question is not rarest]
            keep = [rarest, *others[:1]][: TRAIN_QUESTIONS - total]
            used.update(kind(question["question"]) for question in keep)
            total += len(keep)
            picked.append(paragraph | {"qas": keep})
    return [article | {"paragraphs": picked} for article, picked in zip(articles, chosen, strict=True) if picked]


def held_out_excerpt(articles: list[Article]) -> list[Article]:
    """HELD_OUT_PER_ARTICLE questions of each article, at even distances."""
    excerpt = []
    for article in articles:
        ids = [question["id"] for paragraph in article["paragraphs"] for question in paragraph["qas"]]
        step = len(ids) / HELD_OUT_PER_ARTICLE
        keep = {ids[int((i + 0.5) * step)] for i in range(HELD_OUT_PER_ARTICLE)}
        paragraphs = [p | {"qas": [q for q in p["qas"] if q["id"] in keep]} for p in article["paragraphs"]]
        excerpt.append(article | {"paragraphs": [p for p in paragraphs if p["qas"]]})
    return excerpt


def load(path: Path) -> list[Article]:
    """The articles of an official SQuAD file packed with xz."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        data: list[Article] = json.load(file)["data"]
    return data


def save(path: Path, articles: list[Article]) -> None:
    """Writes the official layout, packed, and prints the counts and checksums for README.md."""
    text = json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False, separators=(",", ":"))
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    path.write_bytes(packed)
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [question["question"] for paragraph in paragraphs for question in paragraph["qas"]]
    print(f"{path.name}: {len(articles)} articles, {len(paragraphs)} contexts, {len(questions)} questions")
    print(f"  kinds: {dict(Counter(map(kind, questions)).most_common())}")
    print(f"  {len(packed)} bytes, sha256 {hashlib.sha256(packed).hexdigest()}")
    print(f"  unpacked sha256 {hashlib.sha256(text.encode()).hexdigest()}")


def main(folder: Path) -> None:
    """Makes both files from the full ones in `folder`."""
    save(HERE / "squad-train.json.xz", train_excerpt(load(folder / "train-v1.1.json.xz")))
    save(HERE / "squad-heldout.json.xz", held_out_excerpt(load(folder / "dev-v1.1.json.xz")))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name the folder that holds train-v1.1.json.xz and dev-v1.1.json.xz: python sample/make.py FOLDER")
    main(Path(sys.argv[1]))
