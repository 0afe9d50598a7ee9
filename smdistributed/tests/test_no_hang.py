"""If one rank fails or stops, the others end soon and report why."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rank_jobs

from tests.ports import free_port

LIMIT = 15.0
"""Most seconds from the exit of a rank to the exit of all others."""
JOBS = 37
"""The number of jobs in no_hang.py."""
Ended = tuple[int, float, str]
"""A rank's exit code, the time of its exit in seconds since its job began, and its output."""


def run_jobs(folder: Path, count: int, **variables: str) -> dict[str, dict[int, Ended]]:
    """How each rank of each job ended. count: of jobs. variables: of no_hang.py."""
    command = [sys.executable, str(Path(__file__).with_name("no_hang.py")), *(str(free_port()) for _ in range(count))]
    limit = max(rank_jobs.LIMIT, 20.0 * count)
    subprocess.run(command, env=rank_jobs.environment(folder, **variables), check=True, timeout=limit)
    endings = json.loads((folder / "endings.json").read_text())
    return {name: {int(rank): tuple(each) for rank, each in ranks.items()} for name, ranks in endings.items()}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, Ended]]:
    """How each rank of each job ended."""
    return run_jobs(tmp_path_factory.mktemp("no-hang"), JOBS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "killed"),
    [
        ("the server of two dies", 1),
        ("the coordinator of two dies", 0),
        ("a server of four dies", 2),
        ("a server of another replica dies", 3),
    ],
)
def test_other_ranks_end_and_name_the_killed_rank(jobs: dict[str, dict[int, Ended]], job: str, killed: int) -> None:
    ended = jobs[job]
    assert ended[killed][0] < 0, ended[killed][2]
    for rank, (code, when, output) in ended.items():
        if rank != killed:
            assert code == 1, output
            assert f"RankLost: Rank {killed} ended without an error message" in output
            assert when - ended[killed][1] < LIMIT


@pytest.mark.slow
def test_failed_step_raises_on_other_replicas(jobs: dict[str, dict[int, Ended]]) -> None:
    """They raise with the failed rank's traceback when they would wait for its gradients.

    Rank 0 forwards the events. If it ends before rank 3 reports its failure, rank 1 knows only that of rank 2.
    """
    second_hand = "RankLost: Rank 2 ended: RuntimeError: A module failed on rank 3"
    for rank, (code, _, output) in jobs["a replica fails"].items():
        assert code == 1
        assert "KeyError: 'the module is broken'" in output
        assert "in fail\n" in output
        first_hand = f"RankLost: A step failed on rank {rank + 2}" in output
        assert (first_hand or (rank == 1 and second_hand in output)) == (rank < 2), output


@pytest.mark.slow
def test_replica_that_continues_after_failed_step_raises(jobs: dict[str, dict[int, Ended]]) -> None:
    """Otherwise its gradients would be averaged with those of another step."""
    first, second = (jobs["a replica goes on"][rank] for rank in range(2))
    assert "RankLost: A step failed on rank 1:" in first[2]
    assert "in fail\n" in first[2]
    assert "RankLost: A step failed at this replica" in second[2] or "RankLost: Rank 0 ended:" in second[2]
    assert (first[0], second[0]) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("a server calls a barrier", "in smp.barrier(WORLD)"),
        ("the coordinator calls a barrier", "in smp.barrier(WORLD)"),
        ("a replica calls a barrier", "in smp.barrier(WORLD)"),
        ("the coordinator saves alone", "in smp.save_checkpoint"),
        ("the coordinator saves alone", "in torch.distributed.barrier()"),
        ("the coordinator gathers alone", "Rank 0 waits for rank 1 in model.state_dict(), and rank 1 for rank 0 in"),
        ("the coordinator clips alone", "in the clipping of gradients"),
        ("a server leaves", "Rank 1 has finished its script, and rank 0 waits for it in a step function"),
        ("replicas train by two functions", "This replica runs the step function train_step, but another replica runs"),
    ],
)
def test_error_names_rank_with_mismatched_call(jobs: dict[str, dict[int, Ended]], job: str, words: str) -> None:
    code, _, output = jobs[job][0]
    assert code == 1
    assert words in output
    assert "every " in output.split("RankLost: ")[-1]
    assert jobs[job][1][0] == (0 if job == "a server leaves" else 1)


@pytest.mark.slow
def test_rank_that_exits_early_ends_nobody_who_does_not_wait_for_it(jobs: dict[str, dict[int, Ended]]) -> None:
    ended = jobs["a replica exits early"]
    assert [code for code, _, _ in ended.values()] == [0, 0], ended
    assert ended[0][2].endswith("saved\n")


@pytest.mark.slow
def test_long_wait_logs_one_line_and_succeeds(jobs: dict[str, dict[int, Ended]]) -> None:
    ended = jobs["all well"]
    assert [code for code, _, _ in ended.values()] == [0, 0]
    output = "smp: rank 0 waits for rank 1 in model.state_dict(), which every rank of the group must call.\n"
    assert [ended[rank][2].count(output) for rank in range(2)] == [1, 0]


TENSOR_PARALLEL = {
    "a tensor parallel rank dies": "RankLost: Rank 1 ended without an error message",
    "a tensor parallel rank fails": "KeyError: 'the module is broken'",
    "a tensor parallel server fails": "KeyError: 'the module is broken'",
    "a tensor parallel rank goes on": "RankLost: ",
    "all tensor parallel ranks go on": "RankLost: ",
    "other rows outside a step": "in different orders or with batches of different shapes",
    "other rows": "must call the same step with batches of one shape",
    "another batch": "must call the same step with batches of one shape, and with prescaled_batch with one batch",
    "a tensor parallel rank branches": "distributed layer",
    "a tensor parallel coordinator branches": "distributed layer",
}
"""Jobs whose ranks all fail, and what they report."""


def check_ends_together(ended: dict[int, Ended], job: str) -> None:
    times = [when for _, when, _ in ended.values()]
    assert max(times) - min(times) < LIMIT
    for code, _, output in ended.values():
        assert code == 1 or (code < 0 and "dies" in job), output
    assert all(TENSOR_PARALLEL[job] in output for code, _, output in ended.values() if code == 1), ended


def check_waiting_rank_ends(ended: dict[int, Ended]) -> None:
    """Rank 1 has left, and rank 0 waits for it."""
    waiting, left = (ended[rank] for rank in range(2))
    assert (waiting[0], left[0]) == (1, 0)
    assert "Rank 1 has finished its script, and rank 0 waits for it in" in waiting[2]
    assert waiting[1] - left[1] < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("job", TENSOR_PARALLEL)
def test_tensor_parallel_ranks_end_together(jobs: dict[str, dict[int, Ended]], job: str) -> None:
    check_ends_together(jobs[job], job)


@pytest.mark.slow
def test_tensor_parallel_rank_that_leaves_ends_the_one_that_waits(jobs: dict[str, dict[int, Ended]]) -> None:
    check_waiting_rank_ends(jobs["a tensor parallel rank leaves"])


@pytest.mark.nightly
def test_tensor_parallel_ranks_end_together_whatever_the_timing(tmp_path: Path) -> None:
    """With random delays. For more than two runs of each job, set the variable REPEAT."""
    count = int(os.environ.get("REPEAT", "2"))
    names = [*TENSOR_PARALLEL, "a tensor parallel rank leaves"]
    endings = run_jobs(tmp_path, len(names) * count, REPEAT=str(count), NAMES=json.dumps(names))
    assert len(endings) == len(names) * count
    for name, ended in endings.items():
        job = name.partition(",")[0]
        if job in TENSOR_PARALLEL:
            check_ends_together(ended, job)
        else:
            check_waiting_rank_ends(ended)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("a sharded rank dies", "RankLost: Rank 1 ended without an error message"),
        ("a sharded rank fails", "KeyError: 'the module is broken'"),
        ("a sharded rank goes on", "RankLost: "),
        ("a sharded rank calls a barrier", "in smp.barrier(WORLD)"),
        ("a rank updates alone", "in optimizer.step()"),
        ("a sharded rank updates alone", "This replica runs the "),
        ("another model", "The parameter blocks.3.linear.bias is (8,) torch.float32 on rank 0 and missing on rank 1."),
        ("a sharded rank reads the state alone", "in model.state_dict()"),
        ("a sharded rank calls one layer more", "This replica runs the "),
    ],
)
def test_sharded_ranks_end_together(jobs: dict[str, dict[int, Ended]], job: str, words: str) -> None:
    ended = jobs[job]
    times = [when for _, when, _ in ended.values()]
    assert max(times) - min(times) < LIMIT
    for code, _, output in ended.values():
        assert code == 1 or (code < 0 and "dies" in job), output
    assert all(words in output for code, _, output in ended.values() if code == 1), ended


@pytest.mark.slow
def test_sharded_rank_that_leaves_ends_the_one_that_waits(jobs: dict[str, dict[int, Ended]]) -> None:
    check_waiting_rank_ends(jobs["a sharded rank leaves"])


DIFFERENT_CALLS = {
    "other lengths outside a step": "with batches of different shapes",
    "another batch outside a step": "or with prescaled_batch with different batches",
    "a tensor parallel rank branches outside a step": "in different orders",
    "a tensor parallel rank calls the model alone": "in a comparison of distributed layers",
    "a sharded rank branches outside a step": "This replica runs the ",
    "a sharded rank calls the model alone": "This replica runs the ",
    "a sharded rank clips alone": "This replica runs the ",
    "another model of the last partition": "Every rank must create the same model",
}
"""Jobs whose ranks make different calls, mostly outside a step, and what they report."""
SLOW = "a sharded rank is slow"


@pytest.mark.nightly
def test_ranks_that_make_different_calls_end_together(tmp_path: Path) -> None:
    """A rank that is only slow ends nobody."""
    names = [*DIFFERENT_CALLS, SLOW]
    endings = run_jobs(tmp_path, len(names), REPEAT="1", NAMES=json.dumps(names))
    for name, words in DIFFERENT_CALLS.items():
        for code, when, output in endings[f"{name}, 0"].values():
            assert code == 1, output
            assert words in output
            assert when < 2 * LIMIT
    assert [code for code, _, _ in endings[f"{SLOW}, 0"].values()] == [0, 0], endings[f"{SLOW}, 0"]
