"""Contents of the training image for mpirun, the SDK's drivers and users' programs."""

from pathlib import Path

import docker
import pytest
from docker.types import Mount
from testinfra.host import Host

from berth.common.containers import Access, run_once
from berth.images.locks import locks
from berth.images.pins import pins
from tests.images.test_both import output
from tests.images.train.conftest import IMAGE


def test_commands_that_the_sdks_call_are_on_path(train: Host) -> None:
    for command in ("bash", "python3", "python", "pip", "pip3", "mpirun", "ssh", "ssh-keygen", "torchrun", "train"):
        assert output(train, f"bash -c 'command -v {command}'"), command
    assert train.file("/usr/sbin/sshd").mode & 0o111
    assert train.file("/run/sshd").is_directory, "without it sshd exits and logs nothing"


def test_mpirun_has_pinned_version_and_runs_two_ranks(train: Host) -> None:
    assert "4.1.8" in output(train, "mpirun --version")
    sums = output(
        train,
        "mpirun --allow-run-as-root --oversubscribe -np 2 "
        "python -c 'from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1))'",
    )
    # Output is unbuffered: a rank writes its number and the newline separately, so lines of two ranks may mix.
    assert sorted(sums.replace("\n", "")) == ["3", "3"]


def test_mpi_does_not_load_libfabric(train: Host) -> None:
    """NCCL's plugin would use the libfabric that MPI has loaded instead of EFA's own, and NCCL would use TCP."""
    printed = output(train, "python -c 'from mpi4py import MPI; print(open(\"/proc/self/maps\").read())'")
    assert "/libmpi.so.40" in printed
    assert "/libfabric.so" not in printed


def test_torch_has_gloo_and_no_mpi(train: Host) -> None:
    printed = output(
        train, "python -c 'import torch.distributed as d; print(d.is_gloo_available(), d.is_mpi_available())'"
    )
    assert printed == "True False"


def test_packages_of_the_sdk_drivers_can_be_imported(train: Host) -> None:
    assert (
        output(train, "python -c 'import paramiko, mpi4py, sagemaker_training.environment, datasets, accelerate'") == ""
    )


def test_packages_of_well_known_scripts_have_pinned_versions(train: Host, profile: pins.Profile) -> None:
    names = [name for name in locks.FOR_SCRIPTS if name in profile.packages]
    program = (
        "import io, numpy, evaluate, tensorboardX; from PIL import Image; from sklearn.metrics import f1_score;"
        "data = io.BytesIO(); Image.new('RGB', (2, 2)).save(data, 'JPEG');"
        "assert Image.open(data).size == (2, 2) and f1_score([0, 1, 1], [0, 1, 0]) > 0.6;"
        "from importlib.metadata import version;"
        f"print(*(version(name) for name in {names}))"
    )
    assert output(train, f'python -c "{program}"') == " ".join(profile.packages[name] for name in names)


def test_data_loader_workers_can_share_tensors(train: Host) -> None:
    program = (
        'import torch, torch.utils.data as d; torch.multiprocessing.set_sharing_strategy("file_system");'
        "loader = d.DataLoader(d.TensorDataset(torch.arange(4)), num_workers=1);"
        "print(sum(int(batch[0]) for batch in loader))"
    )
    assert output(train, f"python -c '{program}'") == "6"


def test_parquet_can_be_read_after_pruning(train: Host) -> None:
    program = (
        'import pyarrow as a, pyarrow.parquet as p; p.write_table(a.table({"x": [1, 2]}), "/tmp/x.parquet");'
        "import datasets;"
        'print(datasets.load_dataset("parquet", data_files="/tmp/x.parquet", cache_dir="/tmp/c")["train"]["x"][1])'
    )
    assert output(train, f"python -c '{program}'").splitlines()[-1] == "2"
    output(train, "rm -rf /tmp/x.parquet /tmp/c")


@pytest.mark.parametrize(
    ("entrypoint", "command"),
    [
        pytest.param(None, None, id="image-alone", marks=pytest.mark.nightly),
        pytest.param(None, ["train"], id="image-train", marks=pytest.mark.nightly),
        pytest.param(["bash", "-c"], ["train"], id="replaced-entrypoint"),
    ],
)
def test_every_way_to_start_the_image_starts_a_job(
    entrypoint: list[str] | None, command: list[str] | None, client: docker.DockerClient, profile: pins.Profile
) -> None:
    """The job has no data, so it fails at once. With transformers 4 it fails because run_qa does not run there."""
    container = client.containers.create(IMAGE, command, entrypoint=entrypoint, network_mode="none")
    try:
        container.start()
        assert container.wait(timeout=90)["StatusCode"] == 1
        log = container.logs().decode()
    finally:
        container.remove(force=True)
    if not profile.runs_berth:
        assert "berth: failed: run_qa, the kit's own program, is for transformers 5" in log, log
    else:
        assert "berth: launch plan" in log
        assert "berth: failed: There is nothing to do: pass SQuAD files as channel train" in log, log
    assert "Traceback" not in log


def test_archive_cases_pass_on_the_images_python(client: docker.DockerClient) -> None:
    cases = Path(__file__).parents[2] / "unit/contract/test_archive.py"
    mount = Mount("/tmp/cases.py", str(cases), type="bind", read_only=True)
    lines = run_once(client, IMAGE, ["python", "-P", "/tmp/cases.py"], Access([mount])).decode().splitlines()
    assert lines[-1].startswith("(3, 11, 2) "), "the test needs Debian's Python, which lacks extraction filters"
    assert lines[-1].endswith(f"{len(lines) - 1} cases")
    assert all(line.startswith("ok: ") for line in lines[:-1])
