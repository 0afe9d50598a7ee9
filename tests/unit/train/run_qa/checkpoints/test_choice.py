"""Tests which files a torch before 2.6 reads: TorchScript and old formats can run code (CVE-2025-32434)."""

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
    """The files of a checkpoint that Trainer reads with torch.load."""
    (tmp_path / "model.safetensors").touch()
    model = torch.nn.Linear(2, 2)
    torch.save(torch.optim.AdamW(model.parameters()).state_dict(), tmp_path / "optimizer.pt")
    torch.save({"last_epoch": 3}, tmp_path / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, tmp_path / "rng_state.pth")
    return tmp_path


def torchscript(path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(path))


def legacy_format(path: Path) -> None:
    torch.save({"last_epoch": 3}, path, _use_new_zipfile_serialization=False)


def tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("pickle"), io.BytesIO())


def cut_off(path: Path) -> None:
    content = io.BytesIO()
    torch.save({"last_epoch": 3}, content)
    path.write_bytes(content.getvalue()[:-40])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
@pytest.mark.parametrize("write", [torchscript, legacy_format, tar, cut_off])
def test_old_torch_refuses_other_file_formats(
    write: Callable[[Path], None], name: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(checkpoint / name)
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(JobError, match=f"{name} is not a zip archive of tensors"):
        with choice.reading_with_old_torch(str(checkpoint), print):
            pass


def test_old_torch_reads_trainers_files_and_logs_the_risk(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = trainer.check_torch_load_is_safe
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    log: list[str] = []
    with choice.reading_with_old_torch(str(checkpoint), log.append):
        assert trainer.check_torch_load_is_safe is not check
    assert trainer.check_torch_load_is_safe is check
    (line,) = log
    assert line.startswith(f"torch 2.5.1 reads the optimizer of {checkpoint}: whoever can write there can run code")


def test_transformers_check_stays_for_new_torch_and_other_weights(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = trainer.check_torch_load_is_safe
    with choice.reading_with_old_torch(str(checkpoint), pytest.fail):
        assert trainer.check_torch_load_is_safe is check
    (checkpoint / "model.safetensors").unlink()
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with choice.reading_with_old_torch(str(checkpoint), pytest.fail):
        assert trainer.check_torch_load_is_safe is check
