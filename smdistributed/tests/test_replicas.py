"""What replicas share after a step besides dense gradients: buffers and sparse gradients."""

from typing import Any

import pytest
import rank_jobs
import torch

pytestmark = pytest.mark.slow

BODY = """
import new_start
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

class Lazy(nn.Module):
    '''Makes a mask and a counter in its first forward pass, and has a branch for even numbers.'''
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.even = nn.Linear(4, 4)
        self.register_buffer("branches", torch.zeros(1))
    def forward(self, x):
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.full((4,), 1.0 + dist.get_rank()), persistent=False)
            self.register_buffer("longest", torch.zeros(2 + dist.get_rank()), persistent=False)
            self.register_buffer("seen", torch.zeros(1))
        self.seen += x.sum().detach()
        if x[0, 0] % 2 == 0:
            self.branches += 1
            x = self.even(x)
        return self.linear(x * self.mask)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 4, sparse=True)
        self.some = nn.Embedding(9, 4, sparse=True)
        self.both = nn.Embedding(9, 4, sparse=True)
    def forward(self, ids):
        rows = self.words(ids)
        if ids.max() > 6:
            rows = rows + self.some(ids)  # on one replica only
        dense = rows @ self.both.weight.t() if ids.min() > 2 else self.both(ids)
        return rows.square().mean() + dense.square().mean()

def begin(model, **options):
    new_start.start({"partitions": 1, "ddp": True, "microbatches": 1, **options.pop("job", {})})
    return smp.DistributedModel(model, **options)

@smp.step
def train_step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss

smp.init()
rank, results = dist.get_rank(), {}
torch.manual_seed(0)
model, seen = begin(Lazy()), []
for step in range(3):
    train_step(model, torch.full((2, 4), float(rank + step)))
    seen.append({name: each.clone() for name, each in model.module.named_buffers()})
results["lazy"] = seen

class Different(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        self.register_buffer(f"of rank {dist.get_rank()}".replace(" ", "_"), torch.zeros(1))
        return self.linear(x)

def sentence(**options):
    try:
        train_step(begin(Different(), **options), torch.ones(2, 4))
    except RuntimeError as error:
        return str(error)
results["different"] = sentence(), sentence(broadcast_buffers=False)

torch.manual_seed(0)
model = begin(Words())
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
batches = torch.tensor([[[0, 1, 2], [3, 3, 5]], [[3, 8, 4], [1, 2, 0]]])  # a step, a rank, its ids
for batch in batches:
    optimizer.zero_grad()
    train_step(model, batch[rank])
    optimizer.step()
results["sparse"] = {name: each.detach() for name, each in model.module.named_parameters()}
results["kept"] = model.module.words.weight.grad.is_sparse
torch.manual_seed(0)
alone = Words()
for batch in batches:
    alone.zero_grad()
    sum(alone(ids).square().mean() / 2 for ids in batch).backward()
    with torch.no_grad():
        for parameter in alone.parameters():
            parameter -= 0.1 * parameter.grad.to_dense() if parameter.grad is not None else 0.0
results["alone"] = {name: each.detach() for name, each in alone.named_parameters()}

class Reads(TorchDispatchMode):
    count = 0
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.count += operator is torch.ops.aten._local_scalar_dense.default
        return operator(*args, **(kwargs or {}))

def clipped(norm, **job):
    model = begin(nn.Sequential(*[nn.Linear(4, 4) for _ in range(25)]), job=job)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=8.0)
    for each in model.parameters():
        each.grad = torch.randn(4, 4)[: len(each)].reshape(-1)[: each.numel()].reshape(each.shape)
    expected = torch.linalg.vector_norm(torch.cat([each.grad.flatten() for each in model.parameters()]), norm)
    with Reads() as reads:
        total = optimizer.clip_master_grads(0.5, norm)
    return reads.count, total, float(expected) / (8.0 if job else 1.0)
results["clipped"] = {**{norm: clipped(norm) for norm in (1.0, 2.0, float("inf"))}, "fp16": clipped(2.0, fp16=True)}
result(results)
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The results of two replicas."""
    return rank_jobs.run(BODY, 2, tmp_path_factory.mktemp("replicas"))


def test_buffers_of_the_first_forward_pass_are_those_of_the_first_replica(ranks: list[Any]) -> None:
    for step, (first, second) in enumerate(zip(ranks[0]["lazy"], ranks[1]["lazy"], strict=True)):
        assert first["seen"].item() == second["seen"].item() == sum(8.0 * each for each in range(step + 1))
        assert [each["mask"].tolist() for each in (first, second)] == [[1.0] * 4, [2.0] * 4]  # not saved: its own
        assert [len(each["longest"]) for each in (first, second)] == [2, 3]


def test_buffer_that_one_replica_changed_is_shared(ranks: list[Any]) -> None:
    """Rank 0 takes the branch in steps 0 and 2, rank 1 in step 1, where its counter goes back to the first one's."""
    assert [[each["branches"].item() for each in rank["lazy"]] for rank in ranks] == [[1.0, 1.0, 2.0]] * 2


def test_replicas_with_different_buffers_are_refused(ranks: list[Any]) -> None:
    for rank in ranks:
        refused, accepted = rank["different"]
        assert "The replicas have different buffers after a forward pass" in refused
        assert accepted is None


def test_sparse_gradients_equal_one_process(ranks: list[Any]) -> None:
    """Also of a parameter that one replica did not use, and of one with a dense gradient on another replica."""
    for rank in ranks:
        assert rank["kept"]
        for name, expected in rank["alone"].items():
            assert torch.allclose(rank["sparse"][name], expected, atol=1e-6), name
            assert torch.equal(rank["sparse"][name], ranks[0]["sparse"][name])


def test_clipping_with_a_loss_scale_reads_few_numbers_however_many_parameters(ranks: list[Any]) -> None:
    """On a GPU each read waits for all work: one to clip, and with fp16 one to see whether gradients are finite."""
    for rank in ranks:
        for name, (reads, total, expected) in rank["clipped"].items():
            assert reads == (2 if name == "fp16" else 1)
            assert total == pytest.approx(expected, rel=1e-6)
