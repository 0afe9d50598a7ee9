"""fsdp on ranks without a GPU: the weights are spread while they are trained, and all else is as without it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForQuestionAnswering

from berth.train.finetune import cpu_fsdp

FSDP = {"fsdp": "full_shard auto_wrap", "max_grad_norm": "0.5", "gradient_accumulation_steps": "2"}


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_holds_a_part_of_every_weight(rank: int, tiny_model: Path) -> None:
    """In a group that is faked: who holds what needs no word between ranks."""
    model = AutoModelForQuestionAnswering.from_pretrained(tiny_model)
    total = sum(weight.numel() for weight in model.parameters())
    bare = cpu_fsdp.skeleton(model)
    assert {weight.device.type for weight in bare.parameters()} == {"meta"}
    assert {buffer.device.type for buffer in bare.buffers()} == {"cpu"}
    dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
    try:
        cpu_fsdp.shard(model)
    finally:
        dist.destroy_process_group()
    units = [name for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    assert units == ["", "bert.embeddings.word_embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1"]
    for weight in model.parameters():
        assert isinstance(weight, DTensor)
        assert weight.to_local().shape[0] < weight.shape[0]
    assert sum(weight.to_local().numel() for weight in model.parameters()) < 0.6 * total


def largest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest difference of two models' weights."""
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.slow
def test_a_sharded_training_gives_the_weights_of_a_plain_one_and_goes_on(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    given = few_steps | FSDP | {"max_steps": "-1", "num_train_epochs": "2", "eval_strategy": "steps", "eval_steps": "3"}
    given |= {"save_strategy": "steps", "save_steps": "0.7", "export_openvino": "false"}
    # By Adam, whose state is not empty; its epsilon keeps what is noise for it from becoming a step.
    given |= {"optim": "adamw_torch_fused", "learning_rate": "0.001", "adam_epsilon": "0.001"}
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, given) for rank in (0, 1)]
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends
    total, least, most = map(int, re.findall(r"fsdp: of the model's (\d+) .* trains (\d+) to (\d+)", ends[0].out)[0])
    assert 0 < least <= most < total == least + most
    plain = [new_job(tmp_path / f"plain{rank}", tiny_model, given | {"fsdp": "false"}) for rank in (0, 1)]
    assert [end.code for end in host.run(*plain)] == [0, 0]
    first = pair[0].weights()
    assert largest(first, plain[0].weights()) < 1e-5
    start = AutoModelForQuestionAnswering.from_pretrained(tiny_model).state_dict()
    assert largest(first, start) > 1e-3, "it has learnt"
    assert pair[0].metrics()["eval_loss"] == pytest.approx(plain[0].metrics()["eval_loss"], abs=1e-4)
    written, like = ({path.name for path in (job.base / "model").iterdir()} for job in (pair[0], plain[0]))
    assert written == like
    assert json.loads((pair[0].base / "model/config.json").read_text())["architectures"] == ["BertForQuestionAnswering"]

    first_saved = pair[0].checkpoints()[0]
    for each in (pair[1], *plain, pair[0]):  # ranks of one host share the folder; here each has its own
        each.goes_on_from(first_saved)
    for jobs in (pair, plain):  # with fsdp, and without
        ends = host.run(*jobs)
        assert [end.code for end in ends] == [0, 0], ends
        assert "going on from " in ends[0].out
        assert largest(jobs[0].weights(), first) < 1e-5


@pytest.mark.slow
def test_the_best_of_a_sharded_training_by_plain_sgd_is_kept(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    given = few_steps | FSDP | {"max_steps": "6", "load_best_model_at_end": "true", "eval_strategy": "steps"}
    given |= {"eval_steps": "2", "save_steps": "2", "save_strategy": "steps"}
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, given) for rank in (0, 1)]
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends
    assert "weights: the same on all 2 ranks" in ends[0].out
    assert pair[0].metrics()["eval_f1"] == max(entry["f1"] for entry in pair[0].history() if "f1" in entry)
    assert (pair[0].base / "model/openvino/graph.json").is_file()
