"""The double of NCCL blocks as NCCL does, and pipelines of two ranks and run_qa's agreement work over it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import rank_jobs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

LATE = """
import threading
rank, group = dist.get_rank(), dist.new_group([0, 1])
control = dist.new_group([0, 1], backend="gloo")

def waits(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(0.5)
    alive = thread.is_alive()
    dist.barrier(control)  # lets the other rank go on
    thread.join()
    return alive

def use():
    dist.all_reduce(torch.ones(1), group=group)

if rank:
    for _ in range(2):
        dist.barrier(control)
        use()
    result(None)
else:
    first_use = waits(use)
    summed = torch.ones(1)
    work = dist.all_reduce(summed, group=group, async_op=True)
    garbage = summed.tolist()
    work.wait()
    result((first_use, garbage, waits(summed.sum), float(summed)))
dist.barrier(control)
os._exit(0)
"""

LOST = """
import time
dist.all_reduce(torch.ones(1))
result(None)
if dist.get_rank():
    os._exit(0)
time.sleep(1)
work = dist.all_reduce(torch.ones(1), async_op=True)
work.wait()
time.sleep(1)
result(work.is_completed())
os._exit(0)
"""

IN_TWO_ORDERS = """
import threading
rank, (there, back) = dist.get_rank(), [dist.new_group([0, 1]) for _ in range(2)]
control = dist.new_group([0, 1], backend="gloo")

def all_reduce(group):
    return lambda: dist.all_reduce(torch.ones(4), group=group)

def move(source, group):
    return lambda: (dist.isend if rank == source else dist.irecv)(torch.ones(4), 1 - rank, group=group)

def finish():
    last = torch.ones(1)
    dist.all_reduce(last)
    return float(last)  # waits for all earlier operations

def over(what):
    result(what)
    os._exit(0)

def within_3_seconds():
    threading.Timer(3, over, ["hangs"]).start()

def compare(one, other):
    for each in (one, other, one, other):
        each()
    assert finish() == 2
    within_3_seconds()
    for each in (other, one) if rank else (one, other):
        each()
    over(finish())
"""
HANGS = {
    "all-reduces of two groups": "compare(all_reduce(there), all_reduce(back))",
    "two collectives of one group": "compare(all_reduce(there), lambda: dist.broadcast(torch.ones(8), 0, group=there))",
    "a send and a receive": "compare(move(0, there), move(1, back))",
    "a first receive before its request": """
within_3_seconds()
if rank:
    dist.recv(torch.ones(1), 0, group=control)
    move(1, there)()
else:
    move(1, there)()
    dist.send(torch.ones(1), 1, group=control)
over(finish())
""",
    "a server that receives ahead of its sends": """
import pipeline_cases
from smdistributed.modelparallel.torch.wire import Wire
pipeline_cases.equality("mlp", {"partitions": 2, "microbatches": 4}, steps=1)
Wire.in_one_order = False
threading.Timer(6, over, ["hangs"]).start()
over(pipeline_cases.equality("mlp", {"partitions": 2, "microbatches": 4}, steps=9))
""",
}

PIPELINES = """
import logging
logging.disable(logging.WARNING)
import pipeline_cases
cases = [
    ("mlp", {"microbatches": 4}), ("roberta", {"microbatches": 4, "pipeline": "simple"}),
    ("bert", {"microbatches": 4, "active_microbatches": 1}), ("dicts", {"microbatches": 3}),
]
result([pipeline_cases.equality(kind, {"partitions": 2, **more}, steps=4) for kind, more in cases])
"""

AGREEMENT = """
from berth.runtime.rank import Rank
from berth.train.run_qa.agreement import Agreement, RankRequest
rank, none = dist.get_rank(), RankRequest(0)
agreement, read = Agreement(Rank(rank, rank, 2, 2)), []
for number in range(6):
    gradients = torch.ones(1000)
    dist.all_reduce(gradients)  # as DDP's, between the exchanges
    mine = {0: {1: RankRequest.SAVE}, 1: {1: RankRequest.STOP, 3: RankRequest.SAVE}}[rank].get(number, none)
    read.append(agreement.exchange(mine).value)
    assert float(gradients.sum()) == 2000
read.append(agreement.settle(RankRequest.STOP if rank else none).value)
result(read)
os._exit(0)
"""


def test_use_of_a_group_waits_for_the_other_rank_and_a_result_when_it_is_read(tmp_path: Path) -> None:
    """Rank 1 joins an operation only when rank 0 has found that it waits."""
    first_use, garbage, read, total = rank_jobs.run(LATE, 2, tmp_path, rank_jobs.OVER_NCCL_DOUBLE)[0]
    assert first_use
    assert read
    assert garbage[0] not in (1, 2)
    assert total == 2


def test_lost_rank_raises_nothing(tmp_path: Path) -> None:
    assert rank_jobs.run(LOST, 2, tmp_path, rank_jobs.OVER_NCCL_DOUBLE)[0] is False


@pytest.fixture(scope="module")
def in_two_orders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """How each of HANGS ended on each rank."""

    def run(body: str) -> list[Any]:
        opening = rank_jobs.OVER_NCCL_DOUBLE + IN_TWO_ORDERS
        return rank_jobs.run(body, 2, tmp_path_factory.mktemp("orders"), opening)

    with ThreadPoolExecutor(len(HANGS)) as pool:
        return dict(zip(HANGS, pool.map(run, HANGS.values()), strict=True))


@pytest.mark.parametrize("name", HANGS)
def test_operations_in_two_orders_hang(in_two_orders: dict[str, list[Any]], name: str) -> None:
    assert "hangs" in in_two_orders[name]


def test_pipelines_over_nccl_equal_one_process(tmp_path: Path) -> None:
    cases = rank_jobs.run(PIPELINES, 2, tmp_path, rank_jobs.OVER_NCCL_DOUBLE, imports=["pipeline_models"])[0]
    assert [each["case"] for each in cases if each["bad"]] == [], cases


def test_ranks_read_the_same_requests_over_nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits: 1 saves, 2 stops. Each exchange returns the requests of the one before."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert rank_jobs.run(AGREEMENT, 2, tmp_path, rank_jobs.OVER_NCCL_DOUBLE) == [[0, 0, 3, 0, 1, 0, 2]] * 2
