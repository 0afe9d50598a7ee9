"""What software sets differ in, as the table has it."""

from pathlib import Path

import pytest

from bench import software_apis
from berth.common.errors import UserError
from berth.images import pins


def test_names_stand_under_the_sets_that_have_them() -> None:
    sets = {"new": ["a", "b", "e"], "between": ["a", "c", "e"], "old": ["a", "d"]}
    assert software_apis.differing(sets) == {"new": "b", "new between": "e", "between": "c", "old": "d"}


def test_a_models_names_become_one_pattern() -> None:
    names = {"new": "LlamaConfig LlamaModel BertNew", "old": "AdamW Realm Van_PRETRAINED_MODEL_ARCHIVE_LIST"}
    exported = [{"LlamaConfig", "LlamaModel"}, {"BertConfig", "BertNew"}]
    assert software_apis.shorten(names, exported, {"BertConfig"}) == {
        "new": "BertNew Llama*",
        "old": "*_PRETRAINED_MODEL_ARCHIVE_LIST AdamW Realm",
    }


def test_a_name_that_transformers_answers_by_another_is_left_out() -> None:
    names = {"new": "ATokenizer", "old": "BTokenizerFast AdamW", "between": "CImageProcessorFast"}
    assert software_apis.without_answered(names, "new") == {"new": "ATokenizer", "old": "AdamW"}


def write(folder: Path, init: str, trainer: str) -> Path:
    for package in software_apis.PACKAGES:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "transformers" / "__init__.py").write_text(init)
    (folder / "transformers" / "trainer.py").write_text(trainer)
    return folder


def test_tables_of_two_sets(tmp_path: Path) -> None:
    new = write(
        tmp_path / "new",
        "from .trainer import Trainer, Later\n",
        "class Trainer:\n    def __init__(self, processing_class): ...\n    def later(self): ...\nclass Later: ...\n",
    )
    old = write(
        tmp_path / "old",
        "from .trainer import Trainer\n",
        "class Trainer:\n    def __init__(self, tokenizer): self.tokenizer = tokenizer\nclass Earlier: ...\n",
    )
    assert software_apis.compare({"new": new, "old": old}) == {
        "names": {"transformers": {"new": "Later"}, "transformers.trainer": {"old": "Earlier"}},
        "keywords": {"transformers:Trainer.__init__": {"new": "processing_class", "old": "tokenizer"}},
        "attributes": {"transformers:Trainer": {"old": "tokenizer"}},
    }


def test_a_set_that_no_profile_has_is_refused() -> None:
    with pytest.raises(UserError, match=r"no profile has the software set 'hf9': name one of current, .*hf4"):
        software_apis.versions("hf9", pins.load())
