"""What a push prints to be pasted, taken by the real SDK v2: its classes, its arguments and an image by digest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from berth.ecr.snippet import estimator_snippet

PASTE = Path(__file__).with_name("paste.py")
URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth@sha256:" + "0" * 64


@pytest.mark.parametrize(("image", "call"), [("train", "Estimator.fit"), ("serve", "Model.deploy")])
def test_the_sdk_takes_it_as_it_is(image: str, call: str, run_sdk: Callable[[Path, str], tuple[Any, str]]) -> None:
    ours, _, _ = estimator_snippet(image, "cpu", URI).partition("# SageMaker SDK v3")
    calls, _ = run_sdk(PASTE, ours)
    assert calls == [f"{call} {URI}"]
