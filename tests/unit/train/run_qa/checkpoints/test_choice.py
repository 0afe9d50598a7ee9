"""Which files of a checkpoint a torch before 2.6 reads: by TorchScript and old formats code runs (CVE-2025-32434)."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import trainer

from berth.contract.errors import JobError
from berth.train.run_qa.checkpoints import choice


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The files of a checkpoint that Trainer reads by torch.load."""
    (tmp_path / "model.safetensors").touch()
    model = torch.nn.Linear(2, 2)
    torch.save(torch.optim.AdamW(model.parameters()).state_dict(), tmp_path / "optimizer.pt")
    torch.save({"last_epoch": 3}, tmp_path / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, tmp_path / "rng_state.pth")
    return tmp_path


def torchscript(path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(path))


def before_zip(path: Path) -> None:
    torch.save({"last_epoch": 3}, path, _use_new_zipfile_serialization=False)


def tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("pickle"), io.BytesIO())


def cut_off(path: Path) -> None:
    whole = io.BytesIO()
    torch.save({"last_epoch": 3}, whole)
    path.write_bytes(whole.getvalue()[:-40])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
@pytest.mark.parametrize("write", [torchscript, before_zip, tar, cut_off])
def test_a_file_that_trainer_does_not_write_is_refused(
    write: Callable[[Path], None], name: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(checkpoint / name)
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(JobError, match=f"{name} is not a zip archive of tensors"):
        with choice.reading_with_old_torch(str(checkpoint), print):
            pass


def test_what_trainer_writes_is_read_and_the_log_says_what_that_trusts(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = trainer.check_torch_load_is_safe
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    said: list[str] = []
    with choice.reading_with_old_torch(str(checkpoint), said.append):
        assert trainer.check_torch_load_is_safe is not check
    assert trainer.check_torch_load_is_safe is check
    (line,) = said
    assert line.startswith(f"torch 2.5.1 reads the optimizer of {checkpoint}: whoever can write there can run code")


def test_weights_that_are_no_safetensors_and_a_newer_torch_keep_the_check(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = trainer.check_torch_load_is_safe
    with choice.reading_with_old_torch(str(checkpoint), pytest.fail):
        assert trainer.check_torch_load_is_safe is check
    (checkpoint / "model.safetensors").unlink()
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with choice.reading_with_old_torch(str(checkpoint), pytest.fail):
        assert trainer.check_torch_load_is_safe is check
