"""Tests how a step's time is divided into categories, with made-up events of the profiler."""

from typing import Any

import pytest

from berth.train.run_qa.reporting.step_times import times_of


def event(category: str, name: str, start: float, end: float, thread: int = 1) -> dict[str, Any]:
    """An event as torch exports it, with times in seconds."""
    return {"ph": "X", "cat": category, "name": name, "tid": thread, "ts": start * 1e6, "dur": (end - start) * 1e6}


STEP = event("user_annotation", "step 3", 0, 10)
DATA = event("user_annotation", "wait for data", 0, 1)
UNCOUNTED = [
    {"ph": "M", "name": "process_name"},
    {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "ts": 0},
    event("user_annotation", "DistributedDataParallel.forward", 0, 10),
    event("user_annotation", "step by step", 0, 10),
    event("cpu_op", "aten::linear", 11, 20),
]
"""Events that do not count for a step's time, such as an operator after its end."""
ON_A_CPU = [
    event("cpu_op", "aten::stack", 0.2, 0.8),  # in the collator
    event("cpu_op", "aten::linear", 1, 4),
    event("cpu_op", "aten::addmm", 1.5, 3),
    event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 4.5, 6),
    event("user_annotation", "gloo:all_reduce", 5, 8, thread=2),
    event("cpu_op", "aten::add_", 8, 9),
]
WAITING_ON_A_CPU = [
    event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 1, 6),
    event("cpu_op", "c10d::_allgather_base_", 2, 5),
    event("user_annotation", "gloo:all_gather", 2.5, 4, thread=2),
]
ON_A_GPU = [
    event("cpu_op", "aten::linear", 1, 9),
    event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0.5, 1, thread=7),
    event("kernel", "ampere_sgemm_128x64_tn", 1, 6, thread=7),
    event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 4, 8, thread=9),
    event("user_annotation", "nccl:all_reduce", 1, 9),
]


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        pytest.param([], (0, 0, 1, 9), id="step-without-operators"),
        pytest.param(ON_A_CPU, (5.5, 2, 1, 1.5), id="cpu-communication-during-compute-does-not-count"),
        pytest.param(WAITING_ON_A_CPU, (2, 3, 1, 4), id="cpu-collective-inside-an-operator"),
        pytest.param(ON_A_GPU, (5.5, 2, 0.5, 2), id="gpu-counts-kernels"),
    ],
)
def test_every_moment_of_a_step_counts_once(events: list[dict[str, Any]], seconds: tuple[float, ...]) -> None:
    times = times_of([STEP, DATA, *UNCOUNTED, *events])
    assert tuple(times.values()) == pytest.approx(seconds)
    assert sum(times.values()) == pytest.approx(10)


def test_several_steps_are_added_up() -> None:
    later = [{**each, "ts": each["ts"] + 30e6} for each in (DATA, *ON_A_CPU)]
    events = [STEP, DATA, *ON_A_CPU, event("user_annotation", "step 4", 30, 40), *later]
    assert tuple(times_of(events).values()) == pytest.approx((11, 4, 2, 3))
