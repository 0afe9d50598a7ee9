"""Tests the choice of data, and the log lines and errors about their questions."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.qa.squad import DataError
from berth.train.run_qa.inputs import questions
from berth.train.run_qa.inputs.data import DataSource, channels, find
from berth.train.run_qa.inputs.questions import load, load_all
from berth.train.run_qa.recipe import Paths, Recipe

CONTEXT = "Oslo is in Norway."


def rows(count: int, **changes: dict[str, Any]) -> str:
    """JSON lines of `count` questions; `_3={…}` changes the third."""
    samples = [
        {"id": f"q{n}", "question": "Which?", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [0]}}
        for n in range(1, count + 1)
    ]
    for name, change in changes.items():
        samples[int(name[1:]) - 1] |= change
    return "".join(json.dumps(row) + "\n" for row in samples)


MOVED = {"answers": {"text": ["Oslo"], "answer_start": [1]}}
EMPTY = {"answers": {"text": [], "answer_start": []}}


def source(folder: Path, split: str, content: str) -> DataSource:
    path = folder / f"{split}.jsonl"
    path.write_text(content)
    return DataSource(split, f"{split} data: channel {split}", path=path)


def test_skipped_question_is_logged_and_counted(tmp_path: Path) -> None:
    log: list[str] = []
    read = load(source(tmp_path, "train", rows(300, _8=MOVED)), Recipe(), None, log.append)
    skipped = (
        "train data: 1 question skipped, whose answer is not at its answer_start: "
        f"{tmp_path}/train.jsonl, line 8 (id q8), the first 'Oslo', but 'slo ' is at 1 (the text is at 0)"
    )
    assert log == ["train data: channel train", skipped, "train data: 299 of 300 questions"]
    assert (len(read.examples), read.notes) == (299, (skipped,))


def test_too_many_skipped_questions_are_refused(tmp_path: Path) -> None:
    moved = {f"_{number}": MOVED for number in range(1, 5)}
    data = source(tmp_path, "train", rows(30, **moved))
    with pytest.raises(DataError, match=r"4 of 30 questions have an answer whose text is not at its answer_start"):
        load(data, Recipe(), None, lambda _: None)
    assert load(data, Recipe(), 20, lambda _: None).count == 20, "of a part of the data, some may be skipped"


def test_log_lines_of_a_limit_and_of_one_question(tmp_path: Path) -> None:
    log: list[str] = []
    assert len(load(source(tmp_path, "train", rows(5)), Recipe(), 2, log.append).examples) == 2
    load(source(tmp_path, "validation", rows(1)), Recipe(), None, log.append)
    assert [line for line in log if "question" in line] == [
        "train data: the first 2 questions",
        "validation data: 1 of 1 question",
    ]


def test_faults_of_all_splits_are_reported_together(tmp_path: Path) -> None:
    sources = {
        "train": source(tmp_path, "train", rows(30, _3=EMPTY, _8=MOVED)),
        "validation": source(tmp_path, "validation", rows(3, _1={"question": ""})),
    }
    with pytest.raises(DataError) as error:
        load_all(sources, Recipe(), dict.fromkeys(sources), lambda _: None)
    message = str(error.value)
    assert (
        "train.jsonl, line 3 (id q3): the question has no answer; line 8 (id q8): an answer's text is not at its "
        "answer_start: 'Oslo', but 'slo ' is at 1 "
    ) in message
    assert 'validation.jsonl, line 1 (id q1): "question" is empty' in message


def channel(base: Path, **contents: str) -> tuple[Paths, frozenset[str]]:
    """A job whose channel train has these JSON lines; `contents`: by file name without suffix."""
    folder = base / "input/data/train"
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / f"{name}.jsonl").write_text(content)
    return Paths(base), frozenset({"train"})


def test_validation_file_among_training_files_is_refused(tmp_path: Path) -> None:
    job = channel(tmp_path, train_1=rows(3), dev_1=rows(2))
    with pytest.raises(DataError, match=r"dev_1\.jsonl in .*train, by its name validation data"):
        find("train", Recipe(), *job)
    train_source = find("train", Recipe(train_file="train_1.jsonl"), *job)
    assert load(train_source, Recipe(), None, lambda _: None).count == 3


def test_training_on_validation_files_only_is_a_warning(tmp_path: Path) -> None:
    log: list[str] = []
    read = load(find("train", Recipe(), *channel(tmp_path, dev=rows(2))), Recipe(), None, log.append)
    assert read.count == 2
    (warning,) = read.notes
    assert warning.startswith("warning: the train data are dev.jsonl in ")
    assert warning in log


def test_log_lists_files_that_were_read_and_not_read(tmp_path: Path) -> None:
    job = channel(tmp_path, a=rows(3), b=rows(1, _1={"id": "other"}))
    (tmp_path / "input/data/train/README.md").write_text("not data")
    (tmp_path / "input/data/train/dataset_infos.json").write_text("{}")
    log: list[str] = []
    load(find("train", Recipe(), *job), Recipe(), None, log.append)
    assert "train data: read a.jsonl (3 questions), b.jsonl (1 question)" in log
    assert "train data: not read (not named like data files): README.md, dataset_infos.json" in log


def test_hub_rows_are_checked_like_files(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of_hub = [
        {"id": 1.0, "question": "Which?", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [0]}},
        {"question": "Why?", "context": CONTEXT, "answers": {"text": [""], "answer_start": [0]}},
    ]
    monkeypatch.setattr(questions, "_from_hub", lambda source, recipe: rows_of_hub)
    source = DataSource("train", "train data: squad of the hub", dataset="squad")
    read = load(source, Recipe(version_2_with_negative=True), None, lambda _: None)
    assert [(each.id, len(each.answers)) for each in read.examples] == [("1", 1), ("squad, row 2", 0)]
    with pytest.raises(DataError, match="squad, row 2: the question has no answer"):
        load(source, Recipe(), None, lambda _: None)


def test_find_prefers_file_then_channel_then_hub(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    file = tmp_path / "input/data/train/a.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    declared = channels(paths)
    assert declared == {"train"}
    hub = Recipe(dataset_name="squad", train_file="a.json")
    assert find("train", hub, paths, declared).path == file
    assert find("train", Recipe(dataset_name="squad"), paths, declared).note == (
        "train data: channel train (not dataset_name squad)"
    )
    assert find("validation", hub, paths, declared).dataset == "squad"
    assert find("train", Recipe(), paths, frozenset({"training"})).path == tmp_path / "input/data/training"
    assert find("validation", Recipe(), paths, frozenset({"test"})).path == tmp_path / "input/data/test"
    assert find("validation", Recipe(), paths, frozenset({"test", "val"})).path == tmp_path / "input/data/val"
    with pytest.raises(DataError, match="There is no validation data: pass a folder with SQuAD files as channel"):
        find("validation", Recipe(), paths, declared)


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ('{"train": {"TrainingInputMode": "Pipe"}}', "Channel train is in Pipe mode"),
        ('{"train": {"TrainingInputMode": "File"}}', "Channel train is declared but"),
        ('{"train": {"S3DistributionType": "ShardedByS3Key"}}', "Channel train is ShardedByS3Key, so each host has"),
    ],
)
def test_unusable_channels_are_refused(declared: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "input/config").mkdir(parents=True)
    (tmp_path / "input/config/inputdataconfig.json").write_text(declared)
    with pytest.raises(DataError, match=sentence):
        channels(Paths(tmp_path), hosts=2)
    if "Sharded" in sentence:
        (tmp_path / "input/data/train").mkdir(parents=True)
        assert channels(Paths(tmp_path), hosts=1) == {"train"}, "a single host has all files"
