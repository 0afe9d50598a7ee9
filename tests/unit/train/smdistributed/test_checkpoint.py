"""Checkpoints of two ranks, each with its half of a model: a double of DistributedModel, whose halves are real."""

from pathlib import Path

import pytest

from berth.train.smdistributed.modelparallel.torch.loss_scale import LossScale, loss_scale
from tests.unit.train.smdistributed import ranks

BODY = """
from torch import nn
from smdistributed.modelparallel.torch.state import state
smp.init({"partitions": 2})

class Halves:
    partitioned = True
    def __init__(self):
        torch.manual_seed(0)
        self.module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    def local_named_parameters(self):
        return [(n, p) for n, p in self.module.named_parameters() if n.startswith(str(smp.pp_rank()))]
    def local_state_dict(self):
        return {**dict(self.local_named_parameters()), "_smp_is_partial": True}
    def state_dict(self):
        return {n: t for part in smp.allgather({n: p.detach() for n, p in self.local_named_parameters()}, smp.PP_GROUP)
                for n, t in part.items()}
    def load_state_dict(self, given, strict=True):
        with torch.no_grad():
            for name, parameter in self.local_named_parameters():
                parameter.copy_(given[name])

def fresh():
    state.model = Halves()
    return state.model, smp.DistributedOptimizer(torch.optim.SGD(state.model.module.parameters(), 0.1, momentum=0.9))

def train(model, optimizer, steps):
    for step in range(steps):
        for _, p in model.local_named_parameters():
            p.grad = torch.full_like(p, step + 1.0)
        optimizer.step()
    return [p.detach().clone() for _, p in model.local_named_parameters()]

found = {}
for partial in (True, False):
    model, optimizer = fresh()
    train(model, optimizer, 2)
    assert isinstance(optimizer, torch.optim.SGD)
    smp.save_checkpoint(f"{RESULTS}/c", "a", partial, model, optimizer, {"step": 2}, num_kept_partial_checkpoints=1)
    expected = train(model, optimizer, 2)
    model, optimizer = fresh()
    content = smp.resume_from_checkpoint(f"{RESULTS}/c", partial=partial)
    found[partial] = (content, all(map(torch.equal, train(model, optimizer, 2), expected)))
found["norm"] = optimizer.clip_master_grads(1.0)
smp.save({"rank": smp.rank()}, f"{RESULTS}/own")
found["own"] = smp.load(f"{RESULTS}/own", partial=True)
result(found)
"""


@pytest.mark.slow
def test_partial_and_full_checkpoints_resume_bit_equal(tmp_path: Path) -> None:
    for rank, found in enumerate(ranks.run(BODY, 2, tmp_path)):
        assert found[True] == found[False] == ({"step": 2}, True)
        assert found["own"] == {"rank": rank}
        assert found["norm"] == pytest.approx((24 * 4.0) ** 0.5)
    names = sorted(path.name for path in (tmp_path / "c").rglob("*") if path.is_file())
    parts = [f"{kind}_{rank}_0.pt" for kind in ("model", "optimizer") for rank in (0, 1)]
    assert names == sorted(["a", "degrees.json", "newest", "optimizer_a", "user_content.pt", "user_content_a", *parts])


def test_a_dynamic_loss_scale_halves_and_doubles() -> None:
    scale = LossScale(8.0, dynamic=True, scale_window=2)
    scale.update(overflow=True)
    assert scale.scale == 4.0
    scale.update(overflow=False)
    scale.update(overflow=False)
    assert scale.scale == 8.0


def test_an_unknown_argument_of_the_loss_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="dynamic_loss_args has no scale_windw"):
        loss_scale(None, dynamic=True, arguments={"scale_windw": 1})
