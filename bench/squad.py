"""Questions of SQuAD for the programs in bench/: version 1.1 in the folder BERTH_SQUAD, or the excerpt in sample/."""

import json
import lzma
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from berth.common.errors import UserError
from berth.images.pins import pins

FILES = {"train": "train-v1.1.json.xz", "heldout": "dev-v1.1.json.xz"}
"""Part of the excerpt → the whole file of SQuAD."""


def excerpt_file(part: str) -> Path:
    return pins.ROOT / "sample" / f"squad-{part}.json.xz"


def squad_file(part: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file in the folder BERTH_SQUAD, or the excerpt if the variable is not set. UserError if it is missing."""
    folder = environ.get("BERTH_SQUAD")
    path = Path(folder, FILES[part]) if folder else excerpt_file(part)
    if not path.is_file():
        raise UserError(f"{path} is missing: set BERTH_SQUAD to a folder with {path.name}, or unset it.")
    return path


def read_text(path: Path) -> str:
    """The JSON text of a compressed file."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def read_articles(path: Path) -> list[Any]:
    """The articles of a compressed file in SQuAD's layout."""
    articles: list[Any] = json.loads(read_text(path))["data"]
    return articles


def pairs(articles: Sequence[Any]) -> list[tuple[dict[str, Any], str]]:
    """Every question with its context."""
    return [
        (question, paragraph["context"])
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
