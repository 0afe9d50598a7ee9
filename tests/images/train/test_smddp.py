"""SageMaker's data parallel library in real jobs on two hosts: a double of it in a derived image.

The double (tests/doubles/smdistributed_double) registers the backend `smddp` over gloo and, like the real library,
rejects a second process group. It can fail at its import, as the real one does on unsupported instances.
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
# The hyperparameters of an estimator with distribution smdistributed dataparallel.
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
    """The training image with the double's wheel."""
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
def test_run_qa_gets_the_same_weights_over_smddp_and_gloo(
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
        assert len([line for line in over_smddp.lines_of(host) if why in line]) == 1
    assert "berth:   each rank: /opt/berth/bin/smddprun /opt/berth/bin/python" in over_smddp.log
    assert any("ranks: 2, smddp, CPU" in line for line in over_smddp.lines_of("algo-1"))
    assert unexpected_lines(over_smddp.log) == []
    over_gloo = train_job(data, model=tiny_model, hosts=2, hyperparameters=TRAIN)
    assert "ranks: 2, gloo, CPU" in over_gloo.log
    smddp, gloo = metrics(over_smddp.outcome.model_archive), metrics(over_gloo.outcome.model_archive)
    assert smddp["train_loss"] == gloo["train_loss"]
    assert smddp["weights_sha256"] == gloo["weights_sha256"]


def test_program_gets_backend_and_variables_of_smddp(
    user_job: Callable[..., Any], with_smddp: str, unexpected_lines: Callable[..., list[str]]
) -> None:
    environment = {"BERTH_DISTRIBUTION": "smddp", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": PROGRAM}, "train.py", image=with_smddp, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 0, ran.log
    for host, ranks in (("algo-1", (0, 1)), ("algo-2", (2, 3))):
        lines = sorted(line for line in ran.lines_of(host) if line.startswith("rank "))
        assert lines == [f"rank {rank} smddp 10 algo-1 local efa 1" for rank in ranks]
    assert unexpected_lines(ran.log) == []


@pytest.mark.nightly
def test_smddp_that_cannot_be_imported_is_replaced_by_gloo(
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
        assert f"rank {rank} gloo 3 None None None None" in ran.lines_of(host)
        (line,) = (line for line in ran.lines_of(host) if UNSUPPORTED in line)
        assert (
            "gloo, over eth0: no GPU that torch can use; smdistributed dataparallel was asked for but can't be used "
            f"(RuntimeError: {UNSUPPORTED})"
        ) in line
    assert unexpected_lines(ran.log) == []
