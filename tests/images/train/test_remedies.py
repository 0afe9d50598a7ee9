"""What helps, in the image itself: packages that requirements.txt replaces, and a requirement that needs git."""

from collections.abc import Callable
from typing import Any

from tests.doubles.package_index import wheel

IMPORTS = "from transformers import Trainer\n"


def test_a_package_that_requirements_txt_replaced_is_behind_the_failure(user_job: Callable[..., Any]) -> None:
    files = {
        "train.py": IMPORTS,
        "requirements.txt": "--no-index\nhuggingface-hub==0.36.0\n",
        "huggingface_hub-0.36.0-py3-none-any.whl": wheel("huggingface_hub", "", "0.36.0"),
    }
    ran = user_job(files, "train.py")
    assert ran.outcome.exit_code == 1
    before = ran.log.index("berth: warning: requirements.txt replaces huggingface-hub ")
    assert before < ran.log.index("Traceback (most recent call last)"), "before the program starts"
    said = ran.sentences()["algo-1"]
    assert "huggingface-hub 0.36.0 (requirements.txt, line 2) conflicts with transformers " in said
    assert "; remove the pin" in said


def test_a_requirement_that_needs_git_gets_its_archive(user_job: Callable[..., Any]) -> None:
    requirement = "peft @ git+https://github.com/huggingface/peft@v0.17.1\n"
    ran = user_job({"train.py": IMPORTS, "requirements.txt": requirement}, "train.py")
    assert ran.outcome.exit_code == 1
    said = ran.sentences()["algo-1"]
    assert "line 1 needs git, which this image does not have" in said
    assert "write peft @ https://github.com/huggingface/peft/archive/v0.17.1.zip in line 1" in said
