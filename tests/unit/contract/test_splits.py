"""Guesses the split of a data file from its name, and checks the files of a split."""

from pathlib import PurePath

import pytest

from berth.contract.splits import NameCheck, check_names, guess_split


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-v1.1.json", "train"),
        ("dev-v2.0.json", "validation"),
        ("plain_text/validation-00000-of-00001.parquet", "validation"),
        ("data/test-00000-of-00001.parquet", "test"),
        ("SQuAD.Eval.jsonl.gz", "validation"),
        ("val2.json", "validation"),
        ("dev/part.json", "validation"),
        ("dev/train.json", "train"),
        ("train_test_mix.json", "train"),
        ("contest.json", ""),
        ("latest/device.json", ""),
        ("part.json", ""),
    ],
)
def test_guess_split(name: str, split: str) -> None:
    assert guess_split(PurePath(name)) == split


FOLDER = PurePath("/opt/ml/input/data/train")


def check(split: str, *names: str) -> NameCheck:
    return check_names(split, FOLDER, [FOLDER / name for name in names])


def test_foreign_file_next_to_own_files_is_refused() -> None:
    assert check("train", "dev-v1.1.json", "train-v1.1.json") == NameCheck(
        f"The train data would have dev-v1.1.json in {FOLDER}, by its name validation data, next to train-v1.1.json: "
        "put validation data into the channel validation, a separate folder, or set train_file to the file or "
        "subfolder to use."
    )
    snapshot = [f"data/{name}-0000{n}-of-00002.parquet" for name in ("train", "validation") for n in (0, 1)]
    assert "data/validation-00000-of-00002.parquet, data/validation-00001" in check("train", *snapshot).refusal
    assert "by their names train data" in check("validation", *snapshot).refusal


@pytest.mark.parametrize(
    ("split", "names", "warning"),
    [
        ("train", ["dev-v1.1.json"], f"the train data are dev-v1.1.json in {FOLDER}, by its name validation data"),
        ("train", ["a.json", "b.json", "train.json"], ""),
        ("validation", ["dev.json", "test.json", "a.json"], ""),
        ("test", ["test.json"], ""),
    ],
)
def test_only_foreign_files_alone_cause_warning(split: str, names: list[str], warning: str) -> None:
    assert check(split, *names) == NameCheck(warning=warning)
