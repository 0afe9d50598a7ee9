"""Split backward passes: a layer's gradients against torch's own, then pipelines of ranks against one process."""

import copy
from pathlib import Path
from typing import Any

import pytest
import rank_jobs
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.pytorch_utils import Conv1D

from berth.smdistributed.modelparallel.parameters import ModelParallelParameters, ParameterError
from berth.smdistributed.modelparallel.torch.late_weights import VARIABLE, LateWeights, split_requested

COUNTED = """
import logging
logging.disable(logging.WARNING)
smp.init({"partitions": 2, "microbatches": 2, "ddp": True})
import pipeline_cases
from smdistributed.modelparallel.torch.late_weights import LateWeights
layers = []
def counted(self, microbatch=None, original=LateWeights.compute_one):
    computed = original(self, microbatch)
    layers.append(microbatch) if computed else None
    return computed
LateWeights.compute_one = counted
"""
TWO = f"""{COUNTED}
cases = [
    ("bert", dict(microbatches=4), False), ("gpt2", dict(microbatches=2), False),
    ("roberta", dict(microbatches=4, pipeline="simple"), True),
]
"""
FOUR = f"""{COUNTED}
cases = [
    ("bert", dict(microbatches=4, partitions=4), False), ("vit", dict(microbatches=2, ddp=True), False),
    ("skips", dict(microbatches=4, partitions=4), False),
    ("bert", dict(microbatches=4, tensor_parallel_degree=2, ddp=True, prescaled_batch=True), True),
]
"""
RUN = """
equal = [
    pipeline_cases.equality(
        kind, {"partitions": 2, **more}, training=pipeline_cases.Training(checkpoints=checkpoints, delays=seed)
    )
    for seed, (kind, more, checkpoints) in enumerate(cases)
]
result((equal, len(layers)))
"""
GLOO, NCCL_DOUBLE = rank_jobs.OPENING, rank_jobs.OVER_NCCL_DOUBLE
JOBS = [
    pytest.param(2, TWO, GLOO, id="2 ranks"),
    pytest.param(4, FOUR, GLOO, id="4 ranks", marks=pytest.mark.nightly),
    pytest.param(4, FOUR, NCCL_DOUBLE, id="4 ranks, NCCL's double", marks=pytest.mark.nightly),
]


class Block(nn.Module):
    """Layers whose weights' gradients can come late, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.linear, self.conv = nn.Embedding(7, 4), nn.Linear(4, 6), Conv1D(3, 6)
        self.norm, self.head = nn.LayerNorm(3), nn.Linear(3, 7, bias=False)

    def forward(self, words: torch.Tensor, *, again: bool) -> torch.Tensor:
        """again: compute the linear layer once more in the backward pass."""
        rows = self.embed(words)
        rows = checkpoint(self.linear, rows, use_reentrant=False) if again else self.linear(rows)
        return self.head(self.norm(self.conv(rows.relu())))


def gradients(block: Block) -> dict[str, torch.Tensor | None]:
    return {name: each.grad for name, each in block.named_parameters()}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_late_gradients_are_those_of_torch(dtype: torch.dtype, *, again: bool) -> None:
    torch.manual_seed(0)
    block, words = Block(), torch.randint(7, (2, 5))
    other = copy.deepcopy(block)
    late = LateWeights([other])
    for each in (block, other):
        each.head.weight.register_hook(lambda gradient: gradient * 2)
    for microbatch in range(2):
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            block(words, again=again).float().square().sum().backward()
            late.microbatch = microbatch
            loss = other(words, again=again).float().square().sum()
        loss.backward()
    missing = {name for name, each in gradients(other).items() if each is None}
    assert missing == {"linear.weight", "linear.bias", "conv.weight", "conv.bias"}, "a weight with a hook is never late"
    assert late.compute_one(1)
    while late.compute_one():
        pass
    for name, expected in gradients(block).items():
        torch.testing.assert_close(gradients(other)[name], expected, rtol=1e-5, atol=1e-6)


def test_a_failed_step_leaves_nothing() -> None:
    layer = nn.Linear(2, 2)
    late = LateWeights([layer])
    layer(torch.ones(1, 2)).sum().backward()
    late.begin()
    assert not late.compute_one()
    assert layer.weight.grad is None


@pytest.mark.parametrize(("value", "split"), [(None, False), ("0", False), ("1", True)])
def test_the_variable_is_1_or_0(value: str | None, *, split: bool) -> None:
    environ = {} if value is None else {VARIABLE: value}
    assert split_requested(environ, ModelParallelParameters()) is split


@pytest.mark.parametrize(
    ("value", "options", "sentence"),
    [("yes", {}, "SMP_SPLIT_BACKWARD is 'yes'"), ("1", {"deterministic_server": True}, "with deterministic_server")],
)
def test_other_values_and_a_deterministic_server_are_refused(value: str, options: Any, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        split_requested({VARIABLE: value}, ModelParallelParameters(**options))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "body", "opening"), JOBS)
def test_split_pipelines_equal_one_process(size: int, body: str, opening: str, tmp_path: Path) -> None:
    ranks = rank_jobs.run(body + RUN, size, tmp_path, opening, imports=["pipeline_models"], **{VARIABLE: "1"})
    assert {each["case"]: each["bad"] for each in ranks[0][0] if each["bad"]} == {}
    counts = [count for _, count in ranks]
    assert counts[0] == 0, "nobody waits for the first rank's input gradients"
    assert counts[-1] > 0, counts
