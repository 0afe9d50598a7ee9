"""What a push tells a user to paste; the SDK itself reads it in tests/local_mode."""

import ast

import pytest

from berth.ecr.snippet import estimator_snippet
from berth.images import pins

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train@sha256:" + "0" * 64


@pytest.mark.parametrize("image", pins.IMAGES)
@pytest.mark.parametrize("profile", pins.load().profiles)
def test_it_is_python_with_the_uri_once_for_each_sdk(image: str, profile: str) -> None:
    text = estimator_snippet(image, profile, URI)
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    assert strings.count(URI) == 2
    assert not any("{" in string for string in strings if isinstance(string, str))


def test_where_there_is_no_run_qa_it_names_a_script() -> None:
    for profile, run_qa in {"cpu": True, "cpu-hf4": False}.items():
        text = estimator_snippet("train", profile, URI)
        assert ("model_name_or_path" in text) == run_qa
        assert (text.count('"train.py"') == 2) != run_qa
        assert ("SourceCode" in text) != run_qa
