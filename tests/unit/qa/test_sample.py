"""Tests that the README of the embedded sample describes its files."""

import hashlib
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

NAMES = ["squad-train.json.xz", "squad-heldout.json.xz"]


def articles(path: Path) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = json.loads(lzma.decompress(path.read_bytes()))["data"]
    return data


@pytest.mark.parametrize("name", NAMES)
def test_readme_of_the_sample_has_its_counts_and_checksums(sample: Path, name: str) -> None:
    path = sample / name
    readme = (sample / "README.md").read_text(encoding="utf-8")
    row = next(line for line in readme.splitlines() if line.startswith(f"| `{name}`"))
    paragraphs = [paragraph for article in articles(path) for paragraph in article["paragraphs"]]
    counts = [len(articles(path)), len(paragraphs), sum(len(p["qas"]) for p in paragraphs), path.stat().st_size]
    assert [int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]+) (?=\|)", row)] == counts
    assert hashlib.sha256(path.read_bytes()).hexdigest() in row
    assert hashlib.sha256(lzma.decompress(path.read_bytes())).hexdigest() in readme
