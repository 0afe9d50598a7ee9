"""What a model folder lacks, told on the machine as in both images."""

from pathlib import Path

import pytest

from berth.contract.model_files import what_is_missing
from berth.runtime.engines import model_folder

WHOLE = ("config.json", "model.safetensors", "tokenizer.json")
FOLDERS = {
    "whole": (WHOLE, ""),
    "an index of weights, a vocabulary": (("config.json", "pytorch_model.bin.index.json", "vocab.txt"), ""),
    "one level down": (tuple(f"export/{name}" for name in WHOLE), ""),
    "empty": ((), "no config.json: pass a folder"),
    "two models": ((*(f"a/{name}" for name in WHOLE), *(f"b/{name}" for name in WHOLE)), "no config.json"),
    "no weights": (("config.json", "tokenizer.json"), "no weights: it needs a model.safetensors or"),
    "no tokenizer": (("config.json", "model.safetensors"), "no tokenizer: save it next to the model"),
}


@pytest.mark.parametrize(("names", "sentence"), FOLDERS.values(), ids=FOLDERS.keys())
def test_what_a_folder_lacks(names: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"model_type": "bert"}')
    told = what_is_missing(tmp_path, "mine")
    assert told.startswith(f"mine holds {sentence}") if sentence else not told
    try:
        model_folder.find(tmp_path)
        served = True
    except model_folder.ModelFilesError:
        served = False
    assert served == (not told), "the server's own check agrees"


def test_an_empty_file_is_none_and_a_tokenizer_may_come_from_elsewhere(tmp_path: Path) -> None:
    for name in WHOLE[:2]:
        (tmp_path / name).write_text("x")
    assert what_is_missing(tmp_path, "mine", tokenizer=False) == ""
    (tmp_path / "model.safetensors").write_text("")
    assert "no weights" in what_is_missing(tmp_path, "mine", tokenizer=False)
