"""transformers before 5 on a host without a GPU, with doubles of TrainingArguments; tests/images/train/test_hf4.py has
two real ranks.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch

from berth.train.startup import cpu_trainer


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
    """Like TrainingArguments of 5, which use the CPU themselves."""

    use_cpu: bool = False
    fp16: bool = False


def hooked(arguments: type, monkeypatch: pytest.MonkeyPatch, *, gpus: bool = False, **environ: str) -> Any:
    """A subclass of `arguments`, patched by the hook like transformers.training_args."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    module = ModuleType("transformers.training_args")
    module.TrainingArguments = type("TrainingArguments", (arguments,), {})  # type: ignore[attr-defined]
    cpu_trainer.after_training_arguments(module, environ)
    return module.TrainingArguments


@pytest.mark.parametrize(
    ("arguments", "gpus", "given", "changed", "log"),
    [
        (
            Arguments426,
            False,
            {"fp16": True, "tf32": True, "bf16": True},
            {"seen": (True, False), "xpu_backend": "gloo", "tf32": None, "bf16": True},
            "berth: fp16 and tf32 are off: this host has no GPU that torch can use\n",
        ),
        (
            Arguments426,
            False,
            {"xpu_backend": "mpi", "tf32": False},
            {"seen": (True, False), "xpu_backend": "mpi", "tf32": False},
            "",
        ),
        (
            Arguments446,
            False,
            {"fp16": True},
            {"seen": (True, False), "no_cuda": False, "ddp_backend": None},
            "berth: fp16 is off: this host has no GPU that torch can use\n",
        ),
        (Arguments5, False, {"fp16": True}, {"use_cpu": False, "fp16": True}, ""),
        (Arguments426, True, {"fp16": True}, {"seen": (False, True)}, ""),
    ],
    ids=["4.26", "4.26 with arguments for a CPU", "4.46", "5", "4.26 on a GPU"],
)
def test_arguments_are_changed_before_post_init(
    arguments: type,
    gpus: bool,
    given: dict[str, Any],
    changed: dict[str, Any],
    log: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = hooked(arguments, monkeypatch, gpus=gpus)(**given)
    assert {name: getattr(made, name) for name in changed} == changed
    assert capsys.readouterr().out == log


@pytest.mark.parametrize(("rank", "logs"), [("0", True), ("1", False)])
def test_only_rank_0_logs(
    rank: str, logs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = hooked(Arguments426, monkeypatch, RANK=rank, WORLD_SIZE="2")(fp16_full_eval=True)
    assert not arguments.fp16_full_eval
    assert ("fp16_full_eval is off" in capsys.readouterr().out) is logs


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
