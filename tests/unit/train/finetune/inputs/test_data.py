"""What a job says of its questions: how many it uses, which it leaves out, and all that is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.qa.squad import DataError
from berth.train.finetune.inputs.data import DataSource
from berth.train.finetune.inputs.questions import load, load_all
from berth.train.finetune.recipe import Recipe

CONTEXT = "Oslo is in Norway."


def rows(count: int, **changes: dict[str, Any]) -> str:
    """JSON lines of `count` questions; `changes` by the row's number, as `_3`."""
    made = [
        {"id": f"q{n}", "question": "Which?", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [0]}}
        for n in range(1, count + 1)
    ]
    for name, change in changes.items():
        made[int(name[1:]) - 1] |= change
    return "".join(json.dumps(row) + "\n" for row in made)


MOVED = {"answers": {"text": ["Oslo"], "answer_start": [1]}}
EMPTY = {"answers": {"text": [], "answer_start": []}}


def source(folder: Path, split: str, content: str) -> DataSource:
    path = folder / f"{split}.jsonl"
    path.write_text(content)
    return DataSource(split, f"{split} data: channel {split}", path=path)


def test_a_question_that_is_left_out_is_named_and_counted(tmp_path: Path) -> None:
    said: list[str] = []
    read = load(source(tmp_path, "train", rows(300, _8=MOVED)), Recipe(), None, said.append)
    skipped = (
        "train data: 1 question skipped, whose answer is not at its answer_start: "
        f"{tmp_path}/train.jsonl, line 8 (id q8)"
    )
    assert said == ["train data: channel train", skipped, "train data: 299 of 300 questions"]
    assert (len(read.examples), read.skipped) == (299, skipped)


def test_a_limit_and_one_question_alone(tmp_path: Path) -> None:
    said: list[str] = []
    assert len(load(source(tmp_path, "train", rows(5)), Recipe(), 2, said.append).examples) == 2
    load(source(tmp_path, "validation", rows(1)), Recipe(), None, said.append)
    assert [line for line in said if "question" in line] == [
        "train data: the first 2 questions",
        "validation data: 1 of 1 question",
    ]


def test_faults_of_every_split_and_of_both_kinds_are_told_in_one_run(tmp_path: Path) -> None:
    sources = {
        "train": source(tmp_path, "train", rows(30, _3=EMPTY, _8=MOVED)),
        "validation": source(tmp_path, "validation", rows(3, _1={"question": ""})),
    }
    with pytest.raises(DataError) as error:
        load_all(sources, Recipe(), dict.fromkeys(sources), lambda _: None)
    told = str(error.value)
    assert (
        "train.jsonl, line 3 (id q3): the question has no answer; line 8 (id q8): an answer's text is not at its "
        "answer_start. "
    ) in told
    assert 'validation.jsonl, line 1 (id q1): "question" is missing or empty' in told
