"""What a push tells a user to paste; the SDK itself reads it in tests/local_mode."""

import ast

import pytest

from berth.ecr.snippet import snippet
from berth.images import pins

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train@sha256:" + "0" * 64


@pytest.mark.parametrize("image", pins.IMAGES)
@pytest.mark.parametrize("profile", pins.load().profiles)
def test_it_is_python_with_the_uri_once_for_each_sdk(image: str, profile: str) -> None:
    text = snippet(image, profile, URI)
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    assert strings.count(URI) == 2
    assert not any("{" in string for string in strings if isinstance(string, str))


def test_a_profile_with_cuda_is_put_on_a_host_with_gpus_that_it_fits() -> None:
    assert "ml.p3.16xlarge" in snippet("train", "cu124", URI), "V100 takes cu124 and no newer one"
    assert "ml.g5.12xlarge" in snippet("train", "cu130", URI)
    assert "ml.c6i" in snippet("train", "cpu", URI)
