"""A job goes on from the checkpoints of an earlier one, and says from which."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS = {"do_train": "True", "per_device_train_batch_size": "4", "save_steps": "1", "save_total_limit": "2"}


def test_a_second_job_goes_on_where_the_first_ended(
    train_job: Callable[..., Any],
    tiny_model: Path,
    excerpt: Any,
    channels: Callable[..., dict[str, Path]],
    tmp_path: Path,
) -> None:
    data = channels(train=excerpt("train", 24))
    kept = tmp_path / "checkpoints"
    steps = {}
    for name, most in (("first", 2), ("second", 4)):
        settings = SETTINGS | {"max_steps": str(most), "logging_steps": "1"}
        ran = train_job(data, model=tiny_model, hyperparameters=settings, checkpoints=kept)
        assert ran.outcome.exit_code == 0, ran.log
        steps[name] = [int(number) for number in re.findall(r"step (\d+) of \d", ran.log)]
    assert "going on from /opt/ml/checkpoints/checkpoint-2-" in ran.log
    assert steps == {"first": [1, 2], "second": [3, 4]}
    assert sorted(path.name.rpartition("-")[0] for path in kept.iterdir()) == ["checkpoint-3", "checkpoint-4"]
