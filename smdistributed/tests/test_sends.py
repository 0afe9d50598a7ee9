"""Control messages of any length, and what a rank keeps of the tensors that it sends."""

from pathlib import Path

import pytest
import rank_jobs

pytestmark = pytest.mark.slow
MB = 1 << 20

STEP = """
import resource
from torch import nn
count = int(os.environ["MICROBATCHES"])
smp.init({"partitions": 2, "microbatches": count, "active_microbatches": 1})
torch.manual_seed(0)
model = smp.DistributedModel(nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256)))

@smp.step
def train_step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss

batch = torch.ones(count * 1024, 256)  # 1 MiB a microbatch
train_step(model, batch)
result((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, batch.nbytes))
"""

MESSAGES = """
from smdistributed.modelparallel.torch.wire import FRAME, Wire
smp.init({"partitions": 2, "microbatches": 1})
wire, messages = Wire(dist.group.WORLD, None, torch.device("cpu")), ["a", "b" * FRAME, "c", "d" * 3 * FRAME, "e"]
if dist.get_rank():
    result([wire.receive(0) == message for message in messages])
else:
    for message in messages:
        wire.send(1, message)
    wire.drain()
    result([])
"""


def peaks(microbatches: int, folder: Path) -> list[int]:
    """The peak memory of each of two ranks in bytes, without the batch."""
    folder.mkdir()
    more = {"MICROBATCHES": str(microbatches), "MALLOC_MMAP_THRESHOLD_": "65536"}  # else glibc keeps what was freed
    return [peak - batch for peak, batch in rank_jobs.run(STEP, 2, folder, **more)]


def test_sent_tensors_are_released_in_the_step(tmp_path: Path) -> None:
    few, many = peaks(10, tmp_path / "few"), peaks(100, tmp_path / "many")
    assert all(more - less < 10 * MB for less, more in zip(few, many, strict=True)), (few, many)


def test_messages_longer_than_a_frame_arrive_in_order(tmp_path: Path) -> None:
    assert rank_jobs.run(MESSAGES, 2, tmp_path)[1] == [True] * 5
