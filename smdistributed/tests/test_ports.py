"""What strangers send to the ports of a job does not run, and does not stop the job."""

import pickle
import socket
import threading
from pathlib import Path

import pytest
import rank_jobs

TRAINING = """
import time
from pathlib import Path
from torch import nn
smp.init({"partitions": 2, "microbatches": 2})
model = smp.DistributedModel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))

@smp.step
def train_step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss

def ports():
    \"\"\"The TCP ports on which this process listens.\"\"\"
    own = {os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    rows = [row.split() for kind in ("tcp", "tcp6") for row in Path(f"/proc/self/net/{kind}").read_text().splitlines()]
    listening = "0A"
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == listening and f"socket:[{row[9]}]" in own}

first = float(train_step(model, torch.ones(4, 8)).reduce_mean())
path = Path(RESULTS, f"ports-{smp.rank()}")
path.with_suffix(".new").write_text(" ".join(map(str, ports())))
path.with_suffix(".new").rename(path)
while not Path(RESULTS, "sent").exists():
    time.sleep(0.01)
result((first, float(train_step(model, torch.ones(4, 8)).reduce_mean())))
"""


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.path), "w")


def send(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        link.sendall(data)


@pytest.mark.slow
def test_hostile_pickles_to_every_port_have_no_effect(tmp_path: Path) -> None:
    hostile = pickle.dumps(Hostile(tmp_path / "unpickled"))
    length = len(hostile).to_bytes(8, "little")
    reached: list[int] = []

    def attack() -> None:
        for rank in range(2):
            path = tmp_path / f"ports-{rank}"
            while not path.exists():
                threading.Event().wait(0.05)
            reached.extend(map(int, path.read_text().split()))
        for port in reached:
            for data in (hostile, length + hostile, b"\0" * 8 + length + hostile):
                send(port, data)
        (tmp_path / "sent").touch()

    thread = threading.Thread(target=attack, daemon=True)
    thread.start()
    results = rank_jobs.run(TRAINING, 2, tmp_path)
    thread.join()
    assert len(reached) >= 3, "torch's store and gloo on both ranks listen"
    assert all(before == after for before, after in results)
    assert not (tmp_path / "unpickled").exists()
    pickle.loads(hostile).close()
    assert (tmp_path / "unpickled").exists(), "the pickle is hostile"
