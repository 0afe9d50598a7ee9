"""A user's own program in the training image: once per host, under mpirun, as a shell script, with requirements."""

import ipaddress
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.doubles.package_index import package_index, wheel

# qa has the name of a berth package, which must not hide it.
PROGRAM = """
import os, sys
import qa
print("program", qa.OWN, os.environ["SM_CURRENT_HOST"], sys.argv[1:], os.environ.get("WORLD_SIZE"), flush=True)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "made-by-" + os.environ["SM_CURRENT_HOST"]), "w") as file:
    file.write("x")
"""
MPI_PROGRAM = """
import os
from mpi4py import MPI
import qa
world = MPI.COMM_WORLD
places = world.gather((world.rank, int(os.environ["RANK"]), os.environ["SM_CURRENT_HOST"], qa.OWN))
if world.rank == 0:
    print("places", world.size, os.environ["WORLD_SIZE"], places, flush=True)
"""
QA = "OWN = 'own qa'\n"


def test_program_runs_once_per_host_and_imports_its_own_qa(user_job: Callable[..., Any], unexpected_lines: Any) -> None:
    ran = user_job(
        {"train.py": PROGRAM, "qa.py": QA},
        "train.py",
        {"epochs": "3", "learning-rate": "3e-05", "name": '"bert"', "b": "4"},
        hosts=2,
    )
    assert ran.outcome.exit_code == 0, ran.log
    arguments = "['-b', '4', '--epochs', '3', '--learning-rate', '3e-05', '--name', 'bert']"
    for host in ("algo-1", "algo-2"):
        lines = [line for line in ran.lines_of(host) if line.startswith("program")]
        assert lines == [f"program own qa {host} {arguments} None"]
    assert "your own program runs once per host unless a distribution is asked for" in ran.log
    assert ran.outcome.model_archive is not None
    assert unexpected_lines(ran.log) == []


def test_berth_distribution_mpi_makes_one_mpi_world(user_job: Callable[..., Any], unexpected_lines: Any) -> None:
    ran = user_job(
        {"train.py": MPI_PROGRAM, "qa.py": QA},
        "train.py",
        hosts=2,
        environment={"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"},
    )
    assert ran.outcome.exit_code == 0, ran.log
    hosts = ("algo-1", "algo-1", "algo-2", "algo-2")
    places = [(rank, rank, host, "own qa") for rank, host in enumerate(hosts)]
    assert [line for line in ran.lines_of("algo-1") if line.startswith("places")] == [f"places 4 4 {places}"]
    assert "process group" not in ran.lines_of("algo-1")[-1], "ranks that use only MPI must not get the warning"
    assert unexpected_lines(ran.log) == []


TRAINER = """
import hashlib
import torch
from transformers import BertConfig, BertForQuestionAnswering, Trainer, TrainingArguments

class Watched(Trainer):
    def training_step(self, model, inputs, *more):
        print("trainer:", model.__class__.__name__, "sees", inputs["input_ids"][:, 0].tolist(), flush=True)
        return super().training_step(model, inputs, *more)

sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
model = BertForQuestionAnswering(BertConfig(vocab_size=100, **sizes))
ends = {"start_positions": torch.tensor(1), "end_positions": torch.tensor(2)}
rows = [{"input_ids": torch.full((8,), number), **ends} for number in range(8)]
arguments = TrainingArguments(
    output_dir="/tmp/out", per_device_train_batch_size=2, max_steps=2, save_strategy="no", report_to=[]
)
Watched(model=model, args=arguments, train_dataset=rows).train()
weights = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())).hexdigest()
print("trainer: rank", arguments.process_index, "of", arguments.world_size, "ends with", weights, flush=True)
"""
TWO_RANKS = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}


@pytest.mark.nightly
def test_trainer_started_by_shell_script_trains_together_on_cpu(user_job: Callable[..., Any]) -> None:
    files = {"start.sh": "exec python train.py\n", "train.py": TRAINER}
    ran = user_job(files, "start.sh", environment=TWO_RANKS)
    assert ran.outcome.exit_code == 0, ran.log
    lines = [line for line in ran.lines_of("algo-1") if line.startswith("trainer: ")]
    matches = [re.search(r"DistributedDataParallel sees \[(\d), (\d)\]", line) for line in lines]
    rows = [int(row) for match in matches if match for row in match.groups()]
    assert sorted(rows) == list(range(8)), "two steps of two ranks with two rows each must cover every row once"
    ends = [re.fullmatch(r"trainer: rank (\d) of 2 ends with (\w+)", line) for line in lines]
    assert sorted(end[1] for end in ends if end) == ["0", "1"]
    assert len({end[2] for end in ends if end}) == 1, "the ranks' weights differ"
    assert "process group" not in ran.lines_of("algo-1")[-1]


PLAIN = """
import torch
model = torch.nn.Linear(1, 1)
model(torch.ones(1)).backward()
"""
ACCELERATOR = """
from accelerate import Accelerator
Accelerator()
"""


@pytest.mark.parametrize(
    ("program", "variables", "note"),
    [
        (PLAIN, {}, "2 ranks ran, but no process group of 2 was formed, so each did the whole work: "),
        pytest.param(
            ACCELERATOR,
            {"ACCELERATE_USE_CPU": "false"},
            "each of the 2 ranks trained its own model, because accelerate did not ",
            marks=[
                pytest.mark.transformers5,
                pytest.mark.nightly,
            ],  # with transformers 4, accelerate would use NCCL and fail
        ),
        pytest.param(ACCELERATOR, {"ACCELERATE_USE_FSDP": "true"}, "fsdp had no effect", marks=pytest.mark.nightly),
    ],
    ids=["no process group", "accelerate ignores the group", "fsdp"],
)
def test_last_log_line_reports_that_ranks_train_alone(
    program: str, variables: dict[str, str], note: str, user_job: Callable[..., Any]
) -> None:
    ran = user_job({"train.py": program}, "train.py", environment=TWO_RANKS | variables)
    assert ran.outcome.exit_code == 0, ran.log
    assert ran.lines_of("algo-1")[-1].startswith(f"berth: the job ends with exit code 0; {note}")


def test_requirements_from_wheel_and_private_index(
    user_job: Callable[..., Any], unexpected_lines: Any, client: docker.DockerClient, tmp_path: Path
) -> None:
    """One package is a wheel next to requirements.txt; the other is on an index whose CA is in a channel."""
    program = "import vendored, far_away\nprint(vendored.WORD, far_away.WORD, flush=True)\n"
    files = {
        "train.py": program,
        "requirements.txt": "vendored==1.0\nfar-away==1.0\n",
        "vendored-1.0-py3-none-any.whl": wheel("vendored", "WORD = 'vendored'\n"),
    }
    # Containers reach this machine at the bridge's first address, which engine 20.10 does not report at first.
    address = str(ipaddress.ip_network(client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Subnet"])[1])
    (tmp_path / "channel").mkdir()
    with package_index(tmp_path, {"far_away": "WORD = 'and fetched'\n"}, address) as index:
        (tmp_path / "channel/company.pem").write_bytes(index.ca.read_bytes())
        environment = {"PIP_INDEX_URL": index.url, "PIP_RETRIES": "0"}
        ran = user_job(files, "train.py", channels={"certificates": tmp_path / "channel"}, environment=environment)
        without_ca = user_job(files, "train.py", environment=environment)
    assert ran.outcome.exit_code == 0, ran.log
    assert "vendored and fetched" in ran.lines_of("algo-1")
    assert unexpected_lines(ran.log) == []
    assert without_ca.outcome.exit_code == 1
    sentence = without_ca.sentences()["algo-1"]
    assert f"index {index.shown} can't be reached for far-away==1.0 (CERTIFICATE_VERIFY_FAILED; trusted " in sentence
    assert "pa55word" not in ran.log + without_ca.log


@pytest.mark.parametrize(("program", "code"), [("", 0), ("raise SystemExit(3)", 3)], ids=["no-model", "failed"])
def test_model_of_earlier_job_is_renamed(program: str, code: int, user_job: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(b"of an earlier job")
    ran = user_job({"train.py": program}, "train.py", output=tmp_path)
    assert (ran.outcome.exit_code, ran.outcome.model_archive) == (code, None)
    assert (tmp_path / "earlier-model.tar.gz").read_bytes() == b"of an earlier job"
    assert not (tmp_path / "model.tar.gz").exists()


CHANGES_OWNER = """
import os
from pathlib import Path
os.chown("/opt/ml/model", OWNER, OWNER)  # like a folder that a user mounted
for path in ("/opt/ml/model/sub/weights", "/opt/ml/output/data/rows"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("x")
os.symlink("/etc/hostname", "/opt/ml/model/link")
"""


def test_files_of_job_belong_to_owner_of_mounted_folder(lone_hosts: Callable[..., Any], tmp_path: Path) -> None:
    """The image runs as root, and in the SDK's local mode a user could neither read nor delete root's files."""
    owner = os.getuid() or 54321
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(CHANGES_OWNER.replace("OWNER", str(owner)))
    program = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/input/data/code"}
    hyperparameters = {name: json.dumps(value) for name, value in program.items()}
    with lone_hosts({"code": code}, hyperparameters, hosts=1) as containers:
        assert containers["algo-1"].wait(timeout=60)["StatusCode"] == 0
    home = tmp_path / "algo-1"
    written = [path for name in ("model", "output") for path in (home / name, *(home / name).rglob("*"))]
    assert {home / "model/sub/weights", home / "model/link", home / "output/data/rows"} <= set(written)
    assert {path.lstat().st_uid for path in written} == {owner}
