"""Questions, and data files of them in every layout and format."""

import gzip
import json
import lzma
from pathlib import Path

import pyarrow as arrow
from pyarrow import parquet

from berth.qa.squad import Answer, Example

CONTEXT = "Emoji 👩‍💻 and cafe\u0301:\r\n Oslo is in Norway.\u2028The end."
OSLO = CONTEXT.index("Oslo")
EXPECTED = [
    Example("q1", "Which city?", CONTEXT, (Answer("Oslo", OSLO), Answer("Oslo is", OSLO))),
    Example("q2", "Which country?", CONTEXT, (Answer("Norway", CONTEXT.index("Norway")),)),
]


def official(examples: list[Example]) -> dict[str, object]:
    return {
        "version": "1.1",
        "data": [
            {
                "title": "Oslo",
                "paragraphs": [
                    {
                        "context": example.context,
                        "qas": [
                            {
                                "id": example.id,
                                "question": example.question,
                                "answers": [{"text": a.text, "answer_start": a.start} for a in example.answers],
                            }
                        ],
                    }
                    for example in examples
                ],
            }
        ],
    }


def flat(examples: list[Example]) -> list[dict[str, object]]:
    return [
        {
            "id": e.id,
            "title": "Oslo",
            "question": e.question,
            "context": e.context,
            "answers": {"text": [a.text for a in e.answers], "answer_start": [a.start for a in e.answers]},
        }
        for e in examples
    ]


def lines(examples: list[Example], ascii_only: bool = False) -> str:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in flat(examples))


def write(path: Path, content: object) -> Path:
    """Write text, JSON or table rows in the format of the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(content if isinstance(content, arrow.Table) else arrow.Table.from_pylist(content), path)
        return path
    data = (content if isinstance(content, str) else json.dumps(content)).encode()
    packing = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix)
    path.write_bytes(packing(data) if packing else data)
    return path


def numbered(count: int, wrong: int) -> list[Example]:
    """Questions with two answers each, of which the second of the first `wrong` questions is misplaced."""
    good = Answer("Oslo", OSLO)
    moved = Answer("Oslo", OSLO + 1)
    return [Example(f"q{i}", "Which?", CONTEXT, (good, moved if i < wrong else good)) for i in range(count)]
