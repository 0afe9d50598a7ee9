"""Tests run_qa with the backend `smddp`, for which tests/doubles has a replacement that runs on a CPU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.images.pins import pins
from berth.train.run_qa.device import RankEnvironment
from berth.train.run_qa.recipe import Paths, complete

CHANNELS = frozenset({"train"})


@pytest.fixture(scope="module")
def smddp_host(host: Any, clean_environment: dict[str, str]) -> Iterator[Any]:
    """Starts ranks with the replacement of smddp on their path."""
    double = str(pins.ROOT / "tests/doubles/smdistributed_double/src")
    path = ":".join(part for part in (double, clean_environment.get("PYTHONPATH", "")) if part)
    with_double = type(host)(clean_environment | {"PYTHONPATH": path})
    yield with_double
    with_double.end()


@pytest.mark.nightly
def test_smddp_gives_the_same_result_as_gloo(
    tmp_path: Path, tiny_model: Path, host: Any, smddp_host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    jobs = {
        backend: [new_job(tmp_path / backend / str(rank), tiny_model, few_steps) for rank in (0, 1)]
        for backend in ("gloo", "smddp")
    }
    ends = [*host.run(*jobs["gloo"]), *smddp_host.run(*jobs["smddp"], BERTH_BACKEND="smddp")]
    assert [end.code for end in ends] == [0, 0, 0, 0], ends
    assert "ranks: 2, smddp, CPU" in ends[2].out
    assert "weights: the same on all 2 ranks" in ends[2].out
    over_gloo, over_smddp = jobs["gloo"][0].metrics(), jobs["smddp"][0].metrics()
    for name in ("weights_sha256", "train_loss", "eval_f1", "eval_exact_match", "eval_loss"):
        assert over_smddp[name] == over_gloo[name], name


@pytest.mark.parametrize(
    ("hyperparameters", "cuda", "launcher", "backend", "warned"),
    [
        ({}, True, "smddp", "smddp", False),
        ({}, False, "smddp", "smddp", False),
        ({"ddp_backend": "smddp"}, True, "smddp", "smddp", False),
        ({"ddp_backend": "nccl"}, True, "smddp", "nccl", False),
        ({"use_cpu": True}, True, "smddp", "gloo", False),
        ({"ddp_backend": "smddp"}, True, "nccl", "nccl", True),
        ({"ddp_backend": "smddp"}, False, "gloo", "gloo", True),
        ({"ddp_backend": "nccl"}, False, "smddp", "gloo", True),
    ],
)
def test_choose_backend(hyperparameters: dict[str, Any], cuda: bool, launcher: str, backend: str, warned: bool) -> None:
    env = RankEnvironment(world_size=2, cuda=cuda, backend=launcher, channels=CHANNELS)
    settings = complete(hyperparameters, Paths(), env)
    assert settings.backend == backend
    assert any("ddp_backend" in warning for warning in settings.warnings) == warned
    assert "ddp_backend" not in settings.training
