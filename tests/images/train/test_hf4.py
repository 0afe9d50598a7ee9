"""The profile cpu-hf4: scripts for transformers 4 run unchanged, and the cpu image serves their models."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.types import Mount

from bench.scripts.data import question_rows, write_rows
from berth.common.containers import Access, run_once
from berth.contract.archive import unpack
from berth.images.pins import pins
from tests.images.train.conftest import IMAGE, SCRIPTS, TRAINER, ServeModel, losses

MODEL = "/opt/ml/input/data/model"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`rows("csv")`, `rows("json")`: a folder with a file of 16 questions."""

    def write(kind: str) -> Path:
        folder = tmp_path_factory.mktemp("rows") / kind
        write_rows(folder / f"rows.{kind}", question_rows("heldout", 16))
        return folder

    return write


def test_two_ranks_of_script_from_2023_train_together(
    user_job: Callable[..., Any], tiny_model: Path, rows: Callable[[str], Path]
) -> None:
    ran = user_job(
        {"train.py": (SCRIPTS / "glue_of_2023.py").read_text()},
        "train.py",
        {"model_name": MODEL, "fp16": "True"},
        channels={"train": rows("csv")},
        model=tiny_model,
        environment={"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"},
    )
    assert ran.outcome.exit_code == 0, ran.log
    lines = [line for line in ran.lines_of("algo-1") if "glue: rank" in line]
    matches = [re.search(r"rank (\d) of 2, step (\d+), (\[.*\]), weights (\w+)", line) for line in lines]
    ends = sorted(match.groups() for match in matches if match)
    assert [(rank, step) for rank, step, _, _ in ends] == [("0", "8"), ("1", "8")], (
        "16 rows, 2 per rank and step, 2 epochs"
    )
    assert len({weights for *_, weights in ends}) == 1, "the ranks' weights differ"
    assert all("'eval_accuracy'" in figures and "'eval_f1'" in figures for _, _, figures, _ in ends)
    assert "Total train batch size (w. parallel, distributed & accumulation) = 4" in ran.log
    assert "Continuing training from global step 4" in ran.log
    assert ran.log.count("berth: fp16 is off: this host has no GPU that torch can use") == 2, "once per Trainer"
    assert "process group" not in ran.lines_of("algo-1")[-1]


# If a host has a GPU and these variables are set, Trainer uses AWS's library, with this backend.
OVER_SMDDP = """
import os
os.environ["SM_FRAMEWORK_PARAMS"] = '{"sagemaker_distributed_dataparallel_enabled": true}'
os.environ["SMDATAPARALLEL_LOCAL_RANK"] = os.environ["LOCAL_RANK"]
import smdistributed.dataparallel.torch.torch_smddp
import torch.distributed
torch.distributed.init_process_group("smddp")
from transformers.utils import is_sagemaker_dp_enabled
assert is_sagemaker_dp_enabled()
"""


def test_trainer_of_transformers_4_uses_open_smddp(user_job: Callable[..., Any], losses_of_one_process: Any) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": OVER_SMDDP + TRAINER}, "train.py", {"batch": "16"}, environment=environment)
    assert losses(ran, ranks=2) == losses_of_one_process
    assert "smddp: open implementation, not AWS's library: 2 ranks over gloo" in ran.log


@pytest.fixture(scope="module")
def trained(
    user_job: Callable[..., Any],
    tiny_model: Path,
    rows: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of the model that the question answering script has trained."""
    ran = user_job(
        {"train.py": (SCRIPTS / "qa_of_2023.py").read_text()},
        "train.py",
        {"model_name": MODEL},
        channels={"train": rows("json")},
        model=tiny_model,
    )
    assert ran.outcome.exit_code == 0, ran.log
    last = next(line for line in ran.lines_of("algo-1") if line.startswith("qa: "))
    assert last.startswith("qa: step 4, ")
    assert "'eval_exact_match', 'eval_f1'" in last
    assert "Continuing training from global step 2" in ran.log
    assert ran.outcome.model_archive is not None
    folder: Path = tmp_path_factory.mktemp("trained") / "model"
    unpack(ran.outcome.model_archive, folder)
    return folder


@pytest.mark.parametrize(
    ("folder", "file"), [(".", "pytorch_model.bin"), ("safe", "model.safetensors")], ids=["bin", "safetensors"]
)
def test_cpu_image_serves_model_of_transformers_4(
    folder: str, file: str, trained: Path, serve_model: ServeModel
) -> None:
    assert (trained / folder / file).is_file()
    served = serve_model(trained / folder)
    status, answer, _ = served.ask({"question": "Where is it?", "context": "It is in the house by the sea."})
    assert status == 200, answer
    assert answer["answer"] in "It is in the house by the sea."


def test_run_qa_is_refused(train_job: Callable[..., Any], tiny_model: Path, rows: Callable[[str], Path]) -> None:
    ran = train_job({"train": rows("json")}, model=tiny_model, hyperparameters={"do_train": "True"})
    assert ran.outcome.exit_code == 1
    assert "is for transformers 5 and this image has 4.26.0: train with an image of " in ran.sentences()["algo-1"]


ARRAYS = """
import numpy as np
from datasets import Array2D, Dataset, Features, load_from_disk
rows = Dataset.from_dict({"n": [1, 2]})
features = Features({**rows.features, "pixels": Array2D(dtype="float32", shape=(2, 2))})
def draw(batch):
    return {**batch, "pixels": [np.full((2, 2), n, dtype="float32") for n in batch["n"]]}
rows.map(draw, batched=True, features=features).save_to_disk("/tmp/rows")
print(load_from_disk("/tmp/rows").with_format("numpy")[1]["pixels"].tolist())
"""


def test_array_columns_are_saved_and_read(client: docker.DockerClient) -> None:
    printed = run_once(client, IMAGE, ["python", "-c", ARRAYS]).decode()
    assert printed.splitlines()[-1] == "[[2.0, 2.0], [2.0, 2.0]]"


def test_lists_saved_by_newer_datasets_are_read(client: docker.DockerClient, tmp_path: Path) -> None:
    access = Access([Mount("/rows", str(tmp_path), type="bind")])
    columns = "{'tokens': [[1, 2], [3]], 'answers': [[{'text': 'a'}], []]}"
    save = f"from datasets import Dataset; Dataset.from_dict({columns}).save_to_disk('/rows/made')"
    run_once(client, f"berth-train:{pins.DEFAULT_PROFILE}", ["python", "-c", save], access)
    read = "from datasets import load_from_disk; print(load_from_disk('/rows/made')[0])"
    printed = run_once(client, IMAGE, ["python", "-c", read], access).decode()
    assert printed.splitlines()[-1] == "{'tokens': [1, 2], 'answers': [{'text': 'a'}]}"
