"""transformers' Trainer in a job that requests partitions, with doubles; one test uses the installed transformers."""

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from berth.images.pins import pins
from berth.train.startup import cpu_trainer, partitioned_trainer

REQUEST = {"SM_HP_MP_PARAMETERS": '{"partitions": 2}', "SM_FRAMEWORK_PARAMS": '{"sagemaker_mpi_enabled": true}'}


def flag(chosen: str, **environ: str) -> str:
    code = (
        "from berth.train.startup import start_hook; start_hook.start()\n"
        "from transformers.utils import is_sagemaker_mp_enabled; print(is_sagemaker_mp_enabled())"
    )
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(pins.ROOT), "BERTH_SMDISTRIBUTED": chosen, **environ}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
def test_smp_flag_of_transformers_5_needs_open() -> None:
    assert flag("", **REQUEST) == "False"
    assert flag("open", **REQUEST) == "True"
    assert flag("") == flag("open") == "False", "a job that requests no partitions"


def module(*, requested: bool | None = None) -> Any:
    """A double of transformers.training_args. `requested`: whether the job requests partitions that are not used."""

    class Arguments:
        def __post_init__(self) -> None: ...

        @property
        def _setup_devices(self) -> Any:
            return torch.device("cuda", 1)

    training_args: Any = ModuleType("transformers.training_args")
    training_args.TrainingArguments = Arguments
    training_args.is_sagemaker_mp_enabled = lambda: requested is None
    if requested is not None:
        training_args.is_sagemaker_mp_enabled.original = lambda: requested
    return training_args


@pytest.mark.parametrize(("requested", "rank", "times"), [(True, "0", 1), (True, "1", 0), (False, "0", 0)])
def test_rank_0_logs_once_that_partitions_are_not_used(
    requested: bool, rank: str, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    training_args = module(requested=requested)
    partitioned_trainer.after_training_arguments(training_args, {"RANK": rank})
    for _ in range(2):
        training_args.TrainingArguments().__post_init__()
    assert capsys.readouterr().out.count(partitioned_trainer.NOT_USED) == times


@pytest.mark.parametrize(("gpus", "device"), [(False, "cpu"), (True, "cuda:1")])
def test_smp_device_is_cpu_without_gpu(gpus: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    training_args = module()
    partitioned_trainer.after_training_arguments(training_args, {})
    assert str(training_args.TrainingArguments()._setup_devices) == device


def patch(trainer: type, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch this class like transformers.trainer.Trainer of a version, in a job with partitions."""
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__=version))  # type: ignore[arg-type]
    trainer_module: Any = ModuleType("transformers.trainer")
    trainer_module.Trainer, trainer_module.is_sagemaker_mp_enabled = trainer, lambda: True
    partitioned_trainer.after_trainer(trainer_module)


@pytest.mark.parametrize(("version", "optimizer"), [("5.23.0", "made"), ("4.26.0", None)])
def test_scheduler_of_transformers_5_gets_optimizer(
    version: str, optimizer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trainer:
        optimizer: str | None = None

        def create_optimizer(self) -> None:
            self.optimizer = "made"

        def create_accelerator_and_postprocess(self) -> None: ...

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            return optimizer

    patch(Trainer, version, monkeypatch)
    assert Trainer().create_scheduler(3) == optimizer
    assert Trainer().create_scheduler(3, "given") == "given"


def test_accelerator_uses_replicas_and_norm_of_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trainer:
        def create_scheduler(self) -> None: ...

        accelerator = SimpleNamespace(state=SimpleNamespace())

        def create_accelerator_and_postprocess(self) -> None: ...

    calls: list[Any] = []
    model = SimpleNamespace(clip_grad_norm_=lambda *arguments: calls.append(arguments) or torch.tensor(7.0))
    smp: Any = SimpleNamespace(dp_size=lambda: 2, dp_rank=lambda: 1, state=SimpleNamespace(model=model))
    monkeypatch.setitem(sys.modules, "smdistributed.modelparallel.torch", smp)
    monkeypatch.setattr("accelerate.state.PartialState", SimpleNamespace)
    patch(Trainer, "5.23.0", monkeypatch)
    trainer: Any = Trainer()
    trainer.create_accelerator_and_postprocess()
    assert (trainer.accelerator.state.num_processes, trainer.accelerator.state.process_index) == (2, 1)
    assert trainer.accelerator.clip_grad_norm_([], 1.0) == 7.0
    assert calls == [(1.0, 2.0)]


@pytest.mark.parametrize("gpus", [False, True])
def test_ddp_of_transformers_4_gets_no_device_on_cpu(gpus: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ddp_options: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)

    class TorchDDP:
        def __init__(self, module: Any, **options: Any) -> None:
            ddp_options.append(options)

    original_init = TorchDDP.__init__
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", TorchDDP)

    class Trainer:
        def _wrap_model(self, model: Any) -> None:
            # Like accelerate from 1.0 on.
            assert not isinstance(model, torch.nn.parallel.DistributedDataParallel)
            torch.nn.parallel.DistributedDataParallel(model, device_ids=[1])  # type: ignore[arg-type]

    trainer_module: Any = ModuleType("transformers.trainer")
    trainer_module.Trainer, trainer_module.TrainingArguments = Trainer, SimpleNamespace(no_cuda=False)
    cpu_trainer.after_trainer(trainer_module)
    Trainer()._wrap_model(None)
    assert ddp_options == ([{"device_ids": [1]}] if gpus else [{"device_ids": None, "output_device": None}])
    assert TorchDDP.__init__ is original_init, "the patch must be removed afterwards"
