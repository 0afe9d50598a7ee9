"""Tests the model folder after SIGKILL while a model is written, and with a full disk."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForQuestionAnswering

from berth.contract.errors import JobError
from berth.contract.model_files import file_faults, model_home
from berth.runtime import whole_files
from berth.train.run_qa import saved_model
from berth.train.run_qa.model import load
from berth.train.run_qa.recipe import Recipe

# For NUMBER 1, 2, … a child process writes the model of argv[1] into argv[2]/NUMBER/model, and kills itself at its
# NUMBERth change of the file system. Stops when a child finishes.
KILLED = """
import os, signal, sys
from pathlib import Path
from transformers import AutoModelForQuestionAnswering, AutoTokenizer
from berth.train.run_qa import saved_model
source, base = sys.argv[1:]
model, tokenizer = AutoModelForQuestionAnswering.from_pretrained(source), AutoTokenizer.from_pretrained(source)
def save(into):
    model.save_pretrained(into, max_shard_size="20KB")
    tokenizer.save_pretrained(into)
number, status = 0, -1
while status:
    number += 1
    pid = os.fork()
    if not pid:
        count = 0
        def kill(event, arguments):
            global count
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if writes or event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir"):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(kill)
        saved_model.write(Path(base, str(number), "model"), save)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
print(number)
"""


def state_of(folder: Path, new: dict[str, torch.Tensor]) -> str:
    """Which model can be loaded from a folder: `new`, `earlier` or `none`."""
    if file_faults(folder, folder):
        assert model_home(folder) is None, "a loader would use an incomplete model"
        return "none"
    weights = load(folder, Recipe()).model.state_dict()
    if weights.keys() == new.keys() and all(torch.equal(weights[name], new[name]) for name in new):
        return "new"
    assert torch.equal(weights["qa_outputs.bias"], torch.full((2,), 9.0))
    assert not list(folder.glob("model-0*.safetensors"))
    return "earlier"


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.nightly
def test_kill_at_any_moment_never_leaves_a_mixed_model(earlier: bool, tmp_path: Path, tiny_model: Path) -> None:
    """The earlier model has one hidden layer less. Its weights are in one file, and the new model's in several."""
    before = tmp_path / "before"
    before.mkdir()
    if earlier:
        torch.manual_seed(1)
        model = BertForQuestionAnswering(BertConfig.from_pretrained(tiny_model, num_hidden_layers=1))
        torch.nn.init.constant_(model.qa_outputs.bias, 9)
        model.save_pretrained(before)
        shutil.copy(tiny_model / "tokenizer.json", before)
    (before / "notes.txt").write_text("a user's file")
    for number in range(1, 60):
        shutil.copytree(before, tmp_path / str(number) / "model")
    result = subprocess.run(
        [sys.executable, "-c", KILLED, str(tiny_model), str(tmp_path)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    new = load_file(tiny_model / "model.safetensors")
    folders = [tmp_path / str(number) / "model" for number in range(1, int(result.stdout) + 1)]
    states = [state_of(folder, new) for folder in folders]
    assert states == sorted(states, key=["earlier", "none", "new"].index)
    assert {"earlier", "none", "new"} == set(states) | (set() if earlier else {"earlier"})
    assert states[-1] == "new"
    for folder in folders:
        whole_files.remove_leftovers(folder)
        assert (folder / "notes.txt").is_file()
        assert not list(folder.glob(".*"))


def test_full_disk_keeps_the_earlier_model(tmp_path: Path) -> None:
    def save(into: Path) -> None:
        (into / "model-00001-of-00002.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(JobError, match=r"The model can't be written to .* \(No space left on device\): give the job a"):
        saved_model.write(tmp_path, save)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_rank_without_files_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    saved_model.write(tmp_path, lambda into: None)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
