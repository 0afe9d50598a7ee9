"""A script like the notebooks of the model parallel library: two partitions and two replicas against one process.

It has convolutions in one partition and linear layers in the other, a GradScaler, Adadelta with a schedule, different
data per replica, an evaluation step that returns numbers, and a partial checkpoint.
"""

from typing import Any

import pytest
import rank_jobs
import torch

COMMON = """
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3)

    def forward(self, pixels):
        return F.max_pool2d(F.relu(self.deep(F.relu(self.wide(pixels)))), 2).flatten(1)

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(128, 32), nn.Linear(32, 10)

    def forward(self, features):
        return F.log_softmax(self.out(F.relu(self.hidden(features))), 1)

class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.classifier = Features(), Classifier()

    def forward(self, pixels):
        return self.classifier(self.features(pixels))

def digits(count):
    # Each image has a bar at the digit's position, and noise.
    generator = torch.Generator().manual_seed(count)
    labels = torch.randint(0, 10, (count,), generator=generator)
    pixels = 0.3 * torch.randn(count, 1, 12, 12, generator=generator)
    for image, label in zip(pixels, labels):
        image[0, 1 + int(label)] += 2
    return pixels, labels

torch.manual_seed(1)
network = Digits()
optimizer = torch.optim.Adadelta(network.parameters(), lr=4.0)
(pixels, labels), check, losses = digits(160), digits(40), []
"""
PIPELINE = """
smp.init({"partitions": 2, "microbatches": 4, "ddp": True})

@smp.step
def train_step(model, scaler, data, target):
    output = model(data)
    loss = F.nll_loss(output, target)
    model.backward(scaler.scale(loss))
    return output, loss

@smp.step
def check_step(model, data, target):
    output = model(data)
    return F.nll_loss(output, target, reduction="sum").item(), int((output.argmax(1) == target).sum())

model = smp.DistributedModel(network)
scaler = smp.amp.GradScaler(init_scale=1024.0)
optimizer = smp.DistributedOptimizer(optimizer)
schedule = StepLR(optimizer, step_size=1, gamma=0.7)
share = len(pixels) // smp.dp_size()
mine = slice(smp.dp_rank() * share, (smp.dp_rank() + 1) * share)
for epoch in range(3):
    model.train()
    for data, target in zip(pixels[mine].split(16), labels[mine].split(16)):
        optimizer.zero_grad()
        _, loss = train_step(model, scaler, data, target)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.reduce_mean().item())
    schedule.step()
model.eval()
with torch.no_grad():
    check_loss, correct = check_step(model, *check)
smp.barrier()
if smp.dp_rank() == 0:
    parts = {"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict()}
    smp.save(parts, f"{RESULTS}/digits.pt", partial=True)
smp.barrier()
own = dict(smp.load(f"{RESULTS}/digits.pt", partial=True)["model"]) if smp.dp_rank() == 0 else {}
result({"losses": losses, "check_loss": sum(check_loss), "correct": sum(correct), "weights": model.state_dict(),
        "own": own, "where": (smp.pp_rank(), smp.dp_rank())})
"""
ONE_PROCESS = """
schedule = StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(3):
    for step in range(0, 80, 16):
        optimizer.zero_grad()
        # The batches of both replicas.
        for share in (0, 80):
            data, target = pixels[share + step : share + step + 16], labels[share + step : share + step + 16]
            loss = F.nll_loss(network(data), target)
            (loss / 2).backward()
            losses.append(loss.item())
        optimizer.step()
    schedule.step()
with torch.no_grad():
    output = network(check[0])
check_loss = F.nll_loss(output, check[1], reduction="sum").item()
correct = int((output.argmax(1) == check[1]).sum())
result({"losses": losses, "check_loss": check_loss, "correct": correct, "weights": network.state_dict()})
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("alone")
    return dict(rank_jobs.run(COMMON + ONE_PROCESS, 1, folder, opening=rank_jobs.PLAIN)[0])


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return rank_jobs.run(COMMON + PIPELINE, 4, tmp_path_factory.mktemp("pipeline"))


@pytest.mark.nightly
def test_losses_and_weights_equal_one_process(alone: dict[str, Any], pipeline: list[dict[str, Any]]) -> None:
    assert sorted(rank["where"] for rank in pipeline) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for rank in pipeline:
        replica = rank["where"][1]
        assert rank["losses"] == pytest.approx(alone["losses"][replica::2], abs=1e-5)
        for name, weight in alone["weights"].items():
            assert torch.allclose(rank["weights"][name], weight, atol=1e-5), name
        assert rank["check_loss"] == pytest.approx(alone["check_loss"], abs=1e-3)
        assert rank["correct"] == alone["correct"]
    assert alone["losses"][-1] < alone["losses"][0] / 2


@pytest.mark.nightly
def test_partial_checkpoint_contains_each_weight_once(alone: dict[str, Any], pipeline: list[dict[str, Any]]) -> None:
    parts = [rank["own"] for rank in pipeline if rank["where"][1] == 0]
    names = [name for part in parts for name, value in part.items() if isinstance(value, torch.Tensor)]
    assert sorted(names) == sorted(alone["weights"])
    assert all(len(part) > 1 for part in parts), "a partition has no weights"
