"""Control messages of any length, and the memory of ranks that send tensors or gather a state."""

from pathlib import Path

import pytest
import rank_jobs

pytestmark = pytest.mark.slow
MB = 1 << 20

TRAINING = """
from torch import nn

@smp.step
def train_step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss
"""

STEP = """
import rank_memory
result(rank_memory.peak_of_sends(int(os.environ["MICROBATCHES"])))
"""

MESSAGES = """
from smdistributed.modelparallel.torch.messages import ServerStatus
from smdistributed.modelparallel.torch.wire import FRAME, Wire
smp.init({"partitions": 2, "microbatches": 1})
wire = Wire(dist.group.WORLD, None, torch.device("cpu"))
messages = [ServerStatus(text) for text in ("a", "b" * FRAME, "c", "d" * 3 * FRAME, "e")]
if dist.get_rank():
    result([wire.receive(0) == message for message in messages])
else:
    for message in messages:
        wire.send(1, message)
    wire.drain()
    result([])
"""

STATES = """
from rank_memory import growth
smp.init({"partitions": 2, "microbatches": 1})
torch.manual_seed(0)
model = smp.DistributedModel(nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)]))
optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-3))

train_step(model, torch.ones(2, 1024))
optimizer.step()
smp.barrier()
part = sum(each.nbytes for each in model.local_parameters())
path = os.environ["RESULTS"]
save = lambda: smp.save_checkpoint(path, "full", partial=False, model=model, optimizer=optimizer)
grown = {
    "all": growth(model.state_dict), "rank 0": growth(lambda: model.state_dict(gather_to_rank0=True)),
    "states": growth(lambda: optimizer.state_dict(gather_to_rank0=True)), "saved": growth(save),
}
sizes = len(model.state_dict(gather_to_rank0=True)), len(optimizer.state_dict(gather_to_rank0=True)["state"])
saved = torch.load(f"{path}/full", weights_only=True)
same = all(torch.equal(each, saved[name]) for name, each in model.state_dict().items())
result((part, grown, sizes, same and len(saved)))
"""


def peaks(microbatches: int, folder: Path) -> list[int]:
    """The peak memory of each of two ranks in bytes, without the batch."""
    folder.mkdir()
    more = {"MICROBATCHES": str(microbatches), "MALLOC_MMAP_THRESHOLD_": "65536"}  # else glibc keeps what was freed
    return rank_jobs.run(STEP, 2, folder, **more)


def test_sent_tensors_are_released_in_the_step(tmp_path: Path) -> None:
    """All that 90 further microbatches send would be 180 MiB; a busy machine may have some in flight."""
    few, many = peaks(10, tmp_path / "few"), peaks(100, tmp_path / "many")
    assert all(more - less < 40 * MB for less, more in zip(few, many, strict=True)), (few, many)


def test_messages_longer_than_a_frame_arrive_in_order(tmp_path: Path) -> None:
    assert rank_jobs.run(MESSAGES, 2, tmp_path)[1] == [True] * 5


def test_gathering_a_state_needs_memory_for_one_tensor_more(tmp_path: Path) -> None:
    """A tensor has 4 MiB, and each of the two ranks half of a model of 64 MiB. All in one object took 3.5 times it."""
    first, second = rank_jobs.run(TRAINING + STATES, 2, tmp_path, MALLOC_MMAP_THRESHOLD_="65536")
    for part, grown, _, same in (first, second):
        assert grown["all"] < part + 2 * 4 * MB + 8 * MB
        assert same == 32
    assert (first[2], second[2]) == ((32, 32), (0, 0))
    grown = first[1]
    assert part / 2 < grown["rank 0"] < part + 16 * MB
    assert part < grown["states"] < 2 * part + 16 * MB
    assert grown["saved"] < 3 * part + 16 * MB
    assert all(second[1][name] < 16 * MB for name in ("rank 0", "states", "saved")), second
