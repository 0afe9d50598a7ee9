"""GradScaler on two ranks: what is not finite on one keeps both from their step."""

from pathlib import Path

import pytest

from tests.unit.train.smdistributed import ranks

BODY = """
smp.init({"partitions": 2})
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], 1.0)
scaler = smp.amp.GradScaler(init_scale=4.0)
seen = []
for bad in (1, None):
    weight.grad = torch.full((2,), float("inf") if smp.rank() == bad else 4.0)
    scaler.step(optimizer)
    scaler.update()
    seen.append((weight.tolist(), scaler.get_scale()))
result(seen)
"""


@pytest.mark.slow
def test_an_overflow_on_one_rank_skips_the_step_on_all(tmp_path: Path) -> None:
    expected = [([1.0, 1.0], 2.0), ([-1.0, -1.0], 2.0)]
    assert ranks.run(BODY, 2, tmp_path) == [expected, expected]
