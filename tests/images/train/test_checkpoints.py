"""A job resumes from the checkpoints of an earlier job and logs which one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.transformers5

SETTINGS = {"do_train": "True", "per_device_train_batch_size": "4", "save_steps": "1", "save_total_limit": "2"}


@pytest.mark.nightly
def test_second_job_resumes_on_another_number_of_hosts(
    train_job: Callable[..., Any],
    tiny_model: Path,
    excerpt: Any,
    channels: Callable[..., dict[str, Path]],
    tmp_path: Path,
) -> None:
    """Incomplete checkpoints, from a kill or from S3, are ignored and deleted."""
    data = channels(train=excerpt("train", 24))
    checkpoints = tmp_path / "checkpoints"
    steps = {}
    for name, most, hosts in (("first", 2, 1), ("second", 4, 2)):
        settings = SETTINGS | {"max_steps": str(most), "logging_steps": "1"}
        ran = train_job(data, model=tiny_model, hyperparameters=settings, checkpoints=checkpoints, hosts=hosts)
        assert ran.outcome.exit_code == 0, ran.log
        steps[name] = [int(number) for number in re.findall(r"step (\d+) of \d", ran.log)]
        assert sorted(step_of(path) for path in checkpoints.iterdir()) == [most - 1, most]
        (checkpoints / ".partial-0a1b2c3d/checkpoint-9").mkdir(parents=True)
        (checkpoints / "checkpoint-9-0a1b2c3d").mkdir()
    assert re.search(r"going on from /opt/ml/checkpoints/checkpoint-2-[0-9a-f]{8} ", ran.log)
    assert "checkpoint-9-0a1b2c3d: berth_checkpoint.json is missing" in ran.log
    assert "a step keeps the checkpoint's 4 windows: 2 ranks, per_device_train_batch_size 2" in ran.log
    assert (steps["first"][-1], steps["second"][0], steps["second"][-1]) == (2, 3, 4)


def step_of(path: Path) -> int:
    """The step in a checkpoint's name."""
    found = re.fullmatch(r"checkpoint-(\d+)-[0-9a-f]{8}", path.name)
    assert found, path
    return int(found[1])
