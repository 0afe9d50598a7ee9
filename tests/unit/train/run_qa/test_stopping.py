"""SIGTERM at any moment of a job: what is trained is kept, the sentence says where, and the next start goes on."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from safetensors.torch import load_file
from torch.testing._internal.distributed.fake_pg import FakeStore

from berth.runtime.rank import Rank
from berth.train.run_qa.agreement import Agreement, RankRequest
from berth.train.run_qa.stopping import STEP_SECONDS, MicroBatches, overruns, step_seconds, stopped_where

# Sends itself SIGTERM in the `at`-th call of a function, and gives the thread that hears it the time to.
SIGNAL_IN = """
import os, signal, time
from berth.train.run_qa import program
from berth.train.run_qa import export, stopping, trainer
from berth.train.run_qa.evaluation import Evaluator
{more}
original = {owner}.{name}
calls = 0
def counted(*arguments, **named):
    global calls
    calls += 1
    if calls == {at}:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
    return original(*arguments, **named)
{owner}.{name} = counted
"""


def signal_in(where: str, at: int = 1, more: str = "") -> str:
    owner, _, name = where.rpartition(".")
    return SIGNAL_IN.format(owner=owner, name=name, at=at, more=more)


STEP = "trainer.QuestionAnsweringTrainer.compute_loss"  # once a micro-batch
BREAKS_OFF = "stopping.STEP_SECONDS = -1.0"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            (40, None, "/c/40"),
            "at step 40 of 312: /c/40 holds all that was trained, and the job goes on from it by itself",
        ),
        ((40, "/m", None), "at step 40 of 312: the model as it was then is in /m, but there is no checkpoint to go on"),
        (
            (40, "/m", "/c/20"),
            "at step 40 of 312: the model as it was then is in /m, but no checkpoint could be written",
        ),
        (
            (40, "/m", "/mnt/40", False),
            "at step 40 of 312: the model as it was then is in /m, and the job goes on from /mnt/40 if that is still",
        ),
        ((312, "/m", "/c/300"), "after its 312 steps: the model is in /m, without what was to come"),
        ((0, None, None), "before the first of its 312 steps was done: start it again."),
    ],
    ids=["checkpoint", "no checkpoint folder", "full disk", "a folder of the user's", "trained", "no step"],
)
def test_the_sentence_says_how_far_the_job_came_and_how_it_goes_on(given: tuple[Any, ...], sentence: str) -> None:
    step, model, checkpoint, uploaded = (*given, True)[:4]
    paths = [Path(each) if each else None for each in (model, checkpoint)]
    said = stopped_where(step, 312, *paths, uploaded=uploaded)
    assert said.startswith(sentence)


@pytest.mark.parametrize(
    ("waited", "left", "mean", "breaks_off"),
    [(0, 15, 4, False), (1, 15, 4, True), (0, 1, 61, True), (59, 1, 0.5, False), (500, 0, 4, False)],
)
def test_a_step_is_broken_off_that_would_end_a_minute_after_the_signal(
    waited: float, left: int, mean: float, breaks_off: bool
) -> None:
    assert overruns(waited, left, mean, STEP_SECONDS) == breaks_off


@pytest.mark.parametrize(("checkpoint", "step"), [(0, 60), (40, 60), (70, 30), (300, 0)])
def test_a_step_leaves_a_large_checkpoint_the_time_that_it_takes(checkpoint: float, step: float) -> None:
    """Together they end 100 s after the signal at most, of SageMaker's 120."""
    assert step_seconds(checkpoint) == step


def test_ranks_learn_a_round_later_what_any_of_them_asked_for_or_wait_for_it() -> None:
    """In a group that is faked, whose sums are this rank's own."""
    alone = Agreement(Rank())
    assert alone.exchange(RankRequest.SAVE) == RankRequest.SAVE
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        agreement = Agreement(Rank(0, 0, 2, 2))
        asked = [RankRequest.SAVE, RankRequest(0), RankRequest.STOP | RankRequest.BREAK_OFF, RankRequest(0)]
        assert [agreement.exchange(each) for each in asked] == [RankRequest(0), *asked[:-1]]
        assert agreement.settle(RankRequest.STOP) == RankRequest.STOP
        assert agreement.settle(RankRequest(0)) == RankRequest(0), "each is told once"
    finally:
        dist.destroy_process_group()


def test_a_micro_batch_is_timed_without_what_lies_between_steps() -> None:
    batches = MicroBatches()
    assert batches.mean_seconds == 0
    for begin in (10.0, 100.0):
        batches.begin_step(begin)
        batches.count(begin + 2)
        batches.count(begin + 6)
    assert (batches.in_step, batches.mean_seconds) == (2, 3.0)


def checkpoints(job: Any) -> list[str]:
    return sorted((path.name for path in (job.base / "checkpoints").iterdir()), key=step_of)


def step_of(name: str) -> int:
    return int(re.findall(r"checkpoint-(\d+)", name)[0])


@pytest.fixture
def few_steps(few_steps: dict[str, str]) -> dict[str, str]:
    return few_steps | {"export_openvino": "false"}


def share_checkpoints(jobs: Sequence[Any]) -> None:
    """One folder for all ranks, as on a host."""
    (jobs[0].base / "checkpoints").mkdir()
    for job in jobs[1:]:
        (job.base / "checkpoints").symlink_to(jobs[0].base / "checkpoints")


LONG = {"num_train_epochs": "2", "max_steps": "-1", "gradient_accumulation_steps": "4", "hidden_dropout_prob": "0.1"}


@pytest.mark.slow
def test_a_signal_to_one_rank_saves_all_and_the_job_ends_as_if_it_had_never_stopped(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """Stopped twice, the second time in the middle of a step, which is broken off: equal bits at the end."""
    given = few_steps | LONG | {"do_eval": "false"}
    whole = [new_job(tmp_path / f"whole{rank}", tiny_model, given, range(40)) for rank in (0, 1)]
    assert [end.code for end in host.run(*whole)] == [0, 0]

    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, given, range(40)) for rank in (0, 1)]
    share_checkpoints(pair)
    reached = []
    for before in (signal_in(STEP, 6), signal_in(STEP, 15, BREAKS_OFF)):
        pair[1].before = before
        ends = host.run(*pair)
        assert [end.code for end in ends] == [143, 143], ends
        newest = checkpoints(pair[0])[-1]
        reached.append(step_of(newest))
        for end in ends:
            assert f"berth: error: the job was stopped (SIGTERM) at step {reached[-1]} of 8: " in end.err
            assert f"checkpoints/{newest} holds all that was trained" in end.err
        assert not (pair[0].base / "model").exists()
    assert "stopping: step 7 would take too long and is broken off" in ends[0].out
    assert reached == [2, 6]
    pair[1].before = ""
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends
    assert pair[0].metrics()["weights_sha256"] == whole[0].metrics()["weights_sha256"]


# Whatever a checkpoint takes.
TAKES_TOO_LONG = "stopping.LIMIT_SECONDS = 0.0"


@pytest.mark.slow
def test_a_step_is_broken_off_for_a_checkpoint_that_takes_all_the_time(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps | {"gradient_accumulation_steps": "4"})
    (tmp_path / "checkpoints").mkdir()
    job.before = signal_in(STEP, 6, TAKES_TOO_LONG)
    (end,) = host.run(job)
    assert end.code == 143
    assert "stopping: step 2 would take too long and is broken off" in end.out
    assert "warning: the checkpoint took " in end.out
    (saved,) = checkpoints(job)
    assert f"(SIGTERM) at step 1 of 5: {tmp_path}/checkpoints/{saved} holds all that was trained" in end.err


@pytest.mark.slow
def test_without_a_checkpoint_folder_the_model_is_left_as_it_is(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    job.before = signal_in(STEP, 3)
    (end,) = host.run(job)
    assert end.code == 143
    assert f"(SIGTERM) at step 3 of 5: the model as it was then is in {tmp_path}/model, but there" in end.err
    assert "a spot interruption loses it: give the estimator checkpoint_s3_uri" in end.err
    assert job.metrics()["train_steps"] == 3
    assert job.weights()
    assert "train_loss = " not in end.out
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_of_a_checkpoint_folder_that_may_go_with_the_container_the_model_is_left_as_well(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps | {"save_strategy": "epoch", "output_dir": str(tmp_path / "mine")})
    job.before = signal_in(STEP, 3)
    (end,) = host.run(job)
    assert end.code == 143
    (saved,) = (tmp_path / "mine").iterdir()
    assert f"model as it was then is in {tmp_path}/model, and the job goes on from {saved} if that is still" in end.err
    assert job.metrics()["train_steps"] == 3
    assert job.weights().keys() == load_file(saved / "model.safetensors").keys()


@pytest.mark.parametrize(
    ("disk", "cause"),
    [("ro", "Read-only file system"), ("size=64k", "No space left on device")],
    ids=["read-only", "full"],
)
@pytest.mark.slow
def test_where_no_checkpoint_can_be_written_a_stop_leaves_the_model(
    disk: str,
    cause: str,
    tmp_path: Path,
    tiny_model: Path,
    host: Any,
    new_job: Any,
    few_steps: dict[str, str],
    mounted: Any,
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    mounted(tmp_path / "checkpoints", disk)
    job.before = signal_in(STEP, 3)
    (end,) = host.run(job)
    assert end.code == 143
    assert f"(SIGTERM) at step 3 of 5: the model as it was then is in {tmp_path}/model, but there is no" in end.err
    assert "Traceback" not in end.err
    assert f"warning: no checkpoint of step 3 could be written into {tmp_path}/checkpoints ({cause})" in end.out
    assert job.metrics()["train_steps"] == 3
    assert job.weights()


@pytest.mark.slow
def test_a_checkpoint_folder_on_one_host_alone_is_refused_and_no_rank_waits(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps) for rank in (0, 1)]
    (tmp_path / "rank0/checkpoints").mkdir()
    ends = host.run(*pair)
    assert [end.code for end in ends] == [1, 1]
    for end in ends:
        assert "error: save_strategy is 'epoch' on rank 0 and 'no' on rank 1: give all hosts the same" in end.err


@pytest.mark.slow
def test_an_evaluation_is_broken_off_and_no_best_model_is_loaded(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    given = {
        "load_best_model_at_end": "true",
        "eval_strategy": "steps",
        "eval_steps": "2",
        "per_device_eval_batch_size": "1",
    }
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps | given) for rank in (0, 1)]
    share_checkpoints(pair)
    pair[0].before = signal_in("stopping.Stopping.interrupted", 11)  # an evaluation asks eight times: in the second
    ends = host.run(*pair)
    assert [end.code for end in ends] == [143, 143], ends
    assert "(SIGTERM) at step 4 of 5: " in ends[1].err
    assert [step_of(name) for name in checkpoints(pair[0])] == [2, 4]
    assert ends[0].out.count("eval_f1 = ") == 1
    pair[0].before = ""
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends


@pytest.mark.slow
def test_after_the_training_the_model_is_there(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    job.before = signal_in("program._save")
    (end,) = host.run(job)
    assert end.code == 143
    assert f"(SIGTERM) after its 5 steps: the model is in {tmp_path}/model, without what" in end.err
    assert job.metrics()["train_steps"] == 5
    assert "eval_f1" not in job.metrics()


@pytest.mark.slow
def test_before_the_training_a_job_ends_at_once(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    job.before = signal_in("program.job_data.load")
    (end,) = host.run(job, BERTH_FAILURE_FILE=str(tmp_path / "sentence"))
    assert end.code == 143
    assert (tmp_path / "sentence").read_text() == (
        "the job was stopped (SIGTERM) before it had anything to save: start it again."
    )
    assert "windows of up to" not in end.out
    assert not (tmp_path / "model").exists()


# The main thread waits for a lock inside a library, where Python calls no handler.
STUCK = """
import ctypes, threading
lock = ctypes.create_string_buffer(64)
def get_stuck():
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(lock)
"""


@pytest.mark.slow
def test_a_second_signal_ends_a_rank_that_waits_inside_a_library(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    job.before = signal_in(STEP, 2, STUCK).replace("time.sleep(0.3)", "get_stuck()")
    (end,) = host.run(job)
    assert end.code == 143
    assert end.err == ""


@pytest.mark.slow
def test_a_job_of_one_epoch_saves_by_time(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    given = few_steps | {
        "num_train_epochs": "1",
        "max_steps": "-1",
        "do_eval": "false",
        "save_minutes": "0.0001",
        "save_total_limit": "99",
    }
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, given) for rank in (0, 1)]
    share_checkpoints(pair)
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends
    assert "checkpoints: epoch and every 0.0001 minutes, in " in ends[0].out
    assert len(checkpoints(pair[0])) > 2
    assert step_of(checkpoints(pair[0])[-1]) == pair[0].metrics()["train_steps"]
    for name in checkpoints(pair[0]):
        assert load_file(pair[0].base / "checkpoints" / name / "model.safetensors")


# Each evaluation is worse than the one before.
WORSE_AND_WORSE = """
from berth.train.run_qa.evaluation import Evaluator
measure, scores_of_fake = Evaluator._measure, iter([90.0, 80.0, 70.0])
def falling(*arguments):
    scores, predictions = measure(*arguments)
    return scores | {"f1": next(scores_of_fake)}, predictions
Evaluator._measure = falling
"""


@pytest.mark.slow
def test_what_a_stop_saved_stays_though_it_is_not_the_best_and_one_is_to_stay(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """Trainer itself would delete it at the end of its loop, and whatever else is called a checkpoint."""
    given = {"load_best_model_at_end": "true", "eval_strategy": "steps", "eval_steps": "2", "save_total_limit": "1"}
    job = new_job(tmp_path, tiny_model, few_steps | given | {"max_steps": "6"})
    (tmp_path / "checkpoints/checkpoint-1").mkdir(parents=True)  # of somebody else's Trainer, not whole
    job.before = WORSE_AND_WORSE + signal_in(STEP, 5)
    (end,) = host.run(job)
    assert end.code == 143
    assert [step_of(name) for name in checkpoints(job)] == [1, 2, 5]
    assert f"checkpoints/{checkpoints(job)[-1]} holds all that was trained" in end.err
