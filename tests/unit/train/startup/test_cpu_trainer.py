"""transformers before 5 on a host without a GPU, with doubles of TrainingArguments. If BERTH_HF4_PYTHON names a Python
with transformers 4.26, two real ranks train. tests/images/train tests it in the image.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from berth.images.pins import pins
from berth.train.startup import cpu_trainer

HF4_PYTHON = os.environ.get("BERTH_HF4_PYTHON", "")


@dataclass
class Arguments426:
    """Like TrainingArguments of 4.26."""

    output_dir: str = ""
    no_cuda: bool = False
    xpu_backend: str | None = None
    fp16: bool = False
    fp16_full_eval: bool = False
    tf32: bool | None = None
    bf16: bool = False

    def __post_init__(self) -> None:
        self.seen = (self.no_cuda, self.fp16)


@dataclass
class Arguments446:
    """Like TrainingArguments of 4.46; accelerate chooses the backend."""

    no_cuda: bool = False
    use_cpu: bool = False
    ddp_backend: str | None = None
    fp16: bool = False

    def __post_init__(self) -> None:
        self.seen = (self.use_cpu, self.fp16)


@dataclass
class Arguments5:
    use_cpu: bool = False
    fp16: bool = False

    def __post_init__(self) -> None:
        self.seen = (self.use_cpu, self.fp16)


def hooked(arguments: type, monkeypatch: pytest.MonkeyPatch, *, gpus: bool = False, **environ: str) -> Any:
    """A subclass of `arguments`, patched by the hook like transformers.training_args."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    module = ModuleType("transformers.training_args")
    module.TrainingArguments = type("TrainingArguments", (arguments,), {})  # type: ignore[attr-defined]
    cpu_trainer.after_training_arguments(module, environ)
    return module.TrainingArguments


def test_arguments_are_changed_before_post_init(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = hooked(Arguments426, monkeypatch)(fp16=True, tf32=True, bf16=True)
    assert arguments.seen == (True, False)
    assert (arguments.xpu_backend, arguments.tf32, arguments.bf16) == ("gloo", None, True)
    assert capsys.readouterr().out == "berth: fp16 and tf32 are off: this host has no GPU that torch can use\n"


def test_cpu_arguments_are_kept_without_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = hooked(Arguments426, monkeypatch)(xpu_backend="mpi", tf32=False)
    assert (arguments.seen, arguments.xpu_backend, arguments.tf32) == ((True, False), "mpi", False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("rank", "logs"), [("0", True), ("1", False)])
def test_only_rank_0_logs(
    rank: str, logs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = hooked(Arguments426, monkeypatch, RANK=rank, WORLD_SIZE="2")(fp16_full_eval=True)
    assert not arguments.fp16_full_eval
    assert ("fp16_full_eval is off" in capsys.readouterr().out) is logs


def test_backend_is_not_set_from_4_30_on(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = hooked(Arguments446, monkeypatch)(fp16=True)
    assert (arguments.seen, arguments.no_cuda, arguments.ddp_backend) == ((True, False), False, None)


@pytest.mark.parametrize(
    ("arguments", "gpus"), [(Arguments5, False), (Arguments426, True)], ids=["transformers 5", "GPU"]
)
def test_arguments_are_kept_by_transformers_5_and_on_gpu(
    arguments: type, gpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hooked(arguments, monkeypatch, gpus=gpus)(fp16=True).seen == (False, True)


def test_own_module_of_that_name_is_not_patched() -> None:
    module = ModuleType("transformers.training_args")
    cpu_trainer.after_training_arguments(module)
    assert not hasattr(module, "TrainingArguments")


@pytest.mark.parametrize(
    ("environ", "leader"),
    [({}, "127.0.0.1"), ({"WORLD_SIZE": "2"}, None), ({"MASTER_ADDR": "algo-1"}, "algo-1")],
    ids=["single rank", "one of two ranks", "address is set"],
)
def test_single_rank_gets_leader_address(environ: dict[str, str], leader: str | None) -> None:
    cpu_trainer.take_cpu(Arguments426(), environ)
    assert environ.get("MASTER_ADDR") == leader


REAL = """
import hashlib, json, sys
from pathlib import Path
from berth.train.startup import start_hook
start_hook.start()
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
torch.manual_seed(0)
config = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
rows = Dataset.from_dict({"input_ids": [[n % 50, n % 7] for n in range(16)], "labels": [n % 2 for n in range(16)]})
arguments = TrainingArguments(sys.argv[1], per_device_train_batch_size=4, num_train_epochs=1, fp16=True, seed=1)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows)
trainer.train()
weights = b"".join(each.detach().numpy().tobytes() for each in trainer.model.parameters())
state = [arguments.world_size, trainer.state.global_step, torch.distributed.get_backend(), str(arguments.device)]
Path(f"{sys.argv[1]}-{arguments.process_index}").write_text(json.dumps([*state, hashlib.sha256(weights).hexdigest()]))
"""


@pytest.mark.skipif(not HF4_PYTHON, reason="BERTH_HF4_PYTHON names no Python with transformers 4.26")
def test_two_ranks_of_transformers_4_26_train_together(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(REAL)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517"]
    result = subprocess.run(
        [HF4_PYTHON, *launcher, str(tmp_path / "program.py"), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(pins.ROOT), "WANDB_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("berth: fp16 is off: this host has no GPU that torch can use") == 1
    first, second = (json.loads((tmp_path / f"out-{rank}").read_text()) for rank in (0, 1))
    assert first[:4] == [2, 2, "gloo", "cpu"], "16 rows: 2 steps with 4 rows per rank"
    assert first == second, "the ranks must have equal weights"
