"""The remedy in a failure reason: for a package that requirements.txt replaced."""

from collections.abc import Callable
from typing import Any

from tests.doubles.package_index import wheel

IMPORTS = "from transformers import Trainer\n"


def test_failure_names_package_that_requirements_txt_replaced(user_job: Callable[..., Any]) -> None:
    files = {
        "train.py": IMPORTS,
        "requirements.txt": "--no-index\nhuggingface-hub==0.36.0\n",
        "huggingface_hub-0.36.0-py3-none-any.whl": wheel("huggingface_hub", "", "0.36.0"),
    }
    ran = user_job(files, "train.py")
    assert ran.outcome.exit_code == 1
    warning = ran.log.index("berth: warning: requirements.txt replaces huggingface-hub ")
    assert warning < ran.log.index("Traceback (most recent call last)"), (
        "the warning must come before the program starts"
    )
    sentence = ran.sentences()["algo-1"]
    assert "huggingface-hub 0.36.0 (requirements.txt, line 2) conflicts with transformers " in sentence
    assert "; remove the pin" in sentence
