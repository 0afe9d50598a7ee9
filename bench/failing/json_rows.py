"""Reads JSON Lines with datasets; a label in the second file is a text."""

import json
import pathlib

from datasets import load_dataset


def read(folder: pathlib.Path) -> None:
    folder.mkdir(exist_ok=True)
    for number, label in enumerate((1, {"name": "spam"})):
        (folder / f"{number}.jsonl").write_text(json.dumps({"text": "a", "label": label}) + "\n")
    load_dataset("json", data_files=str(folder / "*.jsonl"), split="train", cache_dir="/tmp/cache")


read(pathlib.Path("/tmp/rows"))
