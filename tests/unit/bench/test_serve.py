"""The columns of bench/serve.py, and variants of our image."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from bench import serve
from bench.serving.figures import Agreement, ClosedFigures
from bench.serving.load import Load, Reply
from bench.serving.our_image import our_sides
from bench.serving.report import Round
from berth.common.errors import UserError
from berth.local.demo import pretrained_model


def measured(start: int, ping_s: float) -> Round:
    body = json.dumps({"start": start, "end": 9, "answer": "text"}).encode()
    answers = Load((Reply(0.0, 0.0, 0.1, 200, body),), 1.0, 0.0)
    return Round(ping_s, ping_s, 1, 1, {1: ClosedFigures(1.0, 1.0, 1.0, 0, 0.0)}, answers)


def test_each_column_is_compared_with_the_peer() -> None:
    rounds = {"peer": [measured(1, 9.0)], "ours": [measured(1, 4.0), measured(2, 5.0)], "int8": [measured(2, 3.0)]}
    peer, ours, int8 = serve._columns({name: f"description of {name}" for name in rounds}, rounds)
    assert (peer.agreement, ours.agreement, int8.agreement) == (None, Agreement(1, 1, 1), Agreement(1, 0, 1))
    assert (ours.name, ours.description, [each.ping_s for each in ours.rounds]) == (
        "ours",
        "description of ours",
        [4.0, 5.0],
    )


def test_variants_have_different_names_and_inherit_image_and_model(tmp_path: Path) -> None:
    model = pretrained_model()
    options = Namespace(image="berth-serve:cpu", model=model, environment=["A=1"])
    ours, other = our_sides(options, [["other", "image=mine:1", "B=2"]], tmp_path)
    assert (ours.image, ours.model, ours.environment) == ("berth-serve:cpu", model, {"A": "1"})
    assert (other.image, other.model, other.environment) == ("mine:1", model, {"B": "2"})
    with pytest.raises(UserError, match="two variants have the same name"):
        our_sides(options, [["other"], ["other", "B=2"]], tmp_path)
