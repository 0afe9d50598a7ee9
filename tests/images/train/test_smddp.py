"""SageMaker's data parallel library in real jobs: a double of it in an image of the test's own, on two hosts.

The double (tests/doubles/smdistributed_double) registers the backend `smddp` over gloo, refuses a second process group
as the real one does, and can be told to fail at its import as that does on an instance that it does not support.
"""

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from berth.images.pins import pins

TRAIN = {"do_train": "True", "max_steps": "3", "per_device_train_batch_size": "4", "seed": "7"}
# As an estimator with distribution smdistributed dataparallel sends it.
ESTIMATOR = {
    "sagemaker_distributed_dataparallel_enabled": "true",
    "sagemaker_distributed_dataparallel_custom_mpi_options": '""',
    "sagemaker_instance_type": '"ml.p4d.24xlarge"',
}
UNSUPPORTED = "SMDDP does not support the instance type ml.p5.48xlarge"
PROGRAM = """
import os
import torch
import torch.distributed as dist
backend = os.environ["BERTH_BACKEND"]
if backend == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp
dist.init_process_group(backend)
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
names = ("SMDATAPARALLEL_SERVER_ADDR", "SAGEMAKER_INSTANCE_TYPE", "FI_PROVIDER", "SMDDP_DOUBLE_LAUNCHED")
print("rank", dist.get_rank(), dist.get_backend(), int(total), *(os.environ.get(name) for name in names), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def with_smddp(derive: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The training image with the double's wheel in it."""
    folder = tmp_path_factory.mktemp("double")
    shutil.copytree(pins.ROOT / "tests/doubles/smdistributed_double", folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(folder / "source")], check=True, timeout=300)
    label = "LABEL berth.smddp=2.6.0+double"
    return derive("--no-index --no-deps /tmp/files/*.whl", label, files=list(folder.glob("*.whl")))


def metrics(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as tar:
        file = tar.extractfile("metrics.json")
        assert file is not None
        found: dict[str, Any] = json.load(file)
        return found


@pytest.mark.nightly
@pytest.mark.transformers5
def test_run_qa_over_smddp_ends_as_over_gloo(
    train_job: Callable[..., Any],
    channels: Callable[..., dict[str, Path]],
    tiny_model: Path,
    excerpt: Any,
    with_smddp: str,
    unexpected_lines: Callable[..., list[str]],
) -> None:
    data = channels(train=excerpt("train", 24))
    over_smddp = train_job(
        data,
        image=with_smddp,
        model=tiny_model,
        hosts=2,
        hyperparameters=TRAIN | ESTIMATOR,
        environment={"BERTH_LOG_LEVEL": "debug"},
    )
    assert over_smddp.outcome.exit_code == 0, over_smddp.log
    for host in ("algo-1", "algo-2"):
        why = "smddp, over eth0: smdistributed dataparallel was asked for, and its library can be imported"
        assert len([line for line in over_smddp.of(host) if why in line]) == 1
    assert "berth:   each rank: /opt/berth/bin/smddprun /opt/berth/bin/python" in over_smddp.log
    assert any("ranks: 2, smddp, CPU" in line for line in over_smddp.of("algo-1"))
    assert unexpected_lines(over_smddp.log) == []
    over_gloo = train_job(data, model=tiny_model, hosts=2, hyperparameters=TRAIN)
    assert "ranks: 2, gloo, CPU" in over_gloo.log
    mine, reference = metrics(over_smddp.outcome.model_archive), metrics(over_gloo.outcome.model_archive)
    assert mine["train_loss"] == reference["train_loss"]
    assert mine["weights_sha256"] == reference["weights_sha256"]


def test_a_users_program_gets_the_backend_and_the_librarys_variables(
    user_job: Callable[..., Any], with_smddp: str, unexpected_lines: Callable[..., list[str]]
) -> None:
    environment = {"BERTH_DISTRIBUTION": "smddp", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": PROGRAM}, "train.py", image=with_smddp, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 0, ran.log
    for host, ranks in (("algo-1", (0, 1)), ("algo-2", (2, 3))):
        said = sorted(line for line in ran.of(host) if line.startswith("rank "))
        assert said == [f"rank {rank} smddp 10 algo-1 local efa 1" for rank in ranks]
    assert unexpected_lines(ran.log) == []


def test_a_library_whose_import_raises_is_not_used_and_says_why(
    user_job: Callable[..., Any], with_smddp: str, unexpected_lines: Callable[..., list[str]]
) -> None:
    ran = user_job(
        {"train.py": PROGRAM},
        "train.py",
        ESTIMATOR,
        image=with_smddp,
        hosts=2,
        environment={"SMDDP_DOUBLE_UNSUPPORTED": UNSUPPORTED},
    )
    assert ran.outcome.exit_code == 0, ran.log
    for host, rank in (("algo-1", 0), ("algo-2", 1)):
        assert f"rank {rank} gloo 3 None None None None" in ran.of(host)
        told = [line for line in ran.of(host) if UNSUPPORTED in line]
        assert len(told) == 1
        assert (
            "gloo, over eth0: no GPU that torch can use; smdistributed dataparallel was asked for but can't be used "
            f"(RuntimeError: {UNSUPPORTED})"
        ) in told[0]
    assert unexpected_lines(ran.log) == []
