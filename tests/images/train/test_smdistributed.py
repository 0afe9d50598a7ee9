"""berth's open smdistributed in the training image, and transformers' Trainer in jobs that use it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
from testinfra.host import Host

from bench.jobs.small import write_model
from berth.contract.archive import unpack
from tests.images.serve.served import Served
from tests.images.train.conftest import IMAGE, OLDER, SCRIPTS, TRAINER, ServeModel, losses
from tests.images.train.scripts import questions_split

TWO_RANKS = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
# The hyperparameter of SDK v2's estimator with distribution smdistributed modelparallel.
PARTITIONS = {"mp_parameters": '{"partitions": 2, "microbatches": 2, "ddp": true}'}
UNIT_TESTS = Path(__file__).parents[3] / "smdistributed" / "tests"
TENSOR_MODULES = ("pipeline_cases", "pipeline_models", "new_start", "random_delays")
OPEN = "smp: open implementation, not AWS's library: 2 partitions × 2 replicas (cluster), 2 microbatches, interleaved"


def test_open_smdistributed_is_installed(client: docker.DockerClient, train: Host) -> None:
    assert client.images.get(IMAGE).labels["berth.smdistributed"] == "open"
    code = "import smdistributed.dataparallel.torch.torch_smddp as d; import smdistributed as s; print(s.__version__)"
    assert train.check_output(f'python -c "{code}"').endswith("+berth")
    assert train.check_output("command -v smddprun") == "/usr/local/bin/smddprun"
    assert train.check_output("smddprun python -c 'import os; print(os.environ[\"RANK\"])'") == "0"
    code = "from transformers.utils import is_sagemaker_dp_enabled as d, is_sagemaker_mp_enabled as m; print(d(), m())"
    assert train.check_output(f'python -c "{code}"').splitlines()[-1] == "False False", (
        "Trainer must not use it without a job's setting"
    )


@pytest.mark.nightly
def test_trainer_with_partitions_has_losses_of_one_process(
    user_job: Callable[..., Any], losses_of_one_process: Any
) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "4", "BERTH_SMDISTRIBUTED": "open"}
    ran = user_job({"train.py": TRAINER}, "train.py", PARTITIONS | {"batch": "16"}, environment=environment)
    assert losses(ran, ranks=4) == losses_of_one_process
    assert OPEN in ran.log
    assert "partitions are not used" not in ran.log


# Creates the script's model within smp.tensor_parallelism, which scripts with Trainer do not do themselves.
SPLIT_LAYERS = """
import smdistributed.modelparallel.torch as smp
from transformers.models.bert import modeling_bert
created = modeling_bert.BertForSequenceClassification
def split(config):
    with smp.tensor_parallelism():
        return created(config)
modeling_bert.BertForSequenceClassification = split  # transformers imports its names from there, when they are used
"""
COUNT_SPLIT = """
import smdistributed.modelparallel.torch as smp
print(f"split: {len(list(smp.state.model.distributed_modules()))} modules", flush=True)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("code", "split"), [("", "0"), (SPLIT_LAYERS, "[1-9]")], ids=["whole layers", "split layers"])
def test_trainer_with_partitions_and_tensor_parallel_ranks_has_losses_of_one_process(
    user_job: Callable[..., Any], losses_of_one_process: Any, code: str, split: str
) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "4", "BERTH_SMDISTRIBUTED": "open"}
    options = {"partitions": 2, "tensor_parallel_degree": 2, "microbatches": 2, "ddp": True}
    settings = {"mp_parameters": json.dumps(options), "batch": "16"}
    ran = user_job({"train.py": code + TRAINER + COUNT_SPLIT}, "train.py", settings, environment=environment)
    assert losses(ran, ranks=4) == losses_of_one_process
    assert "2 partitions × 2 tensor parallel ranks × 1 replicas" in ran.log
    assert re.search(rf"split: {split}\d* modules", ran.log)


@pytest.mark.nightly
@pytest.mark.transformers5
def test_trainer_of_transformers_5_warns_that_partitions_are_not_used(
    user_job: Callable[..., Any], losses_of_one_process: Any
) -> None:
    ran = user_job({"train.py": TRAINER}, "train.py", PARTITIONS | {"batch": "16"}, environment=TWO_RANKS)
    assert losses(ran, ranks=2) == losses_of_one_process, "it must train data-parallel with the same batches"
    assert OPEN not in ran.log
    assert ran.log.count("berth: partitions are not used: Trainer of transformers 5 trains data-parallel") == 1


@pytest.mark.nightly
def test_two_tensor_parallel_ranks_equal_one_process(user_job: Callable[..., Any]) -> None:
    """Layers have other modules in other versions of transformers, so every profile is asked."""
    files = {f"{name}.py": (UNIT_TESTS / f"{name}.py").read_text() for name in TENSOR_MODULES}
    files["train.py"] = (SCRIPTS / "tensor_parallel.py").read_text()
    ran = user_job(files, "train.py", environment=TWO_RANKS)
    assert ran.outcome.exit_code == 0, ran.log
    lines = [line for line in ran.lines_of("algo-1") if line.startswith("tensor: ")]
    assert len(lines) == (7 if OLDER else 9), ran.log
    assert all("errors none" in line and ", 0 split" not in line for line in lines), lines


@pytest.mark.nightly
def test_trainer_with_smddp_has_losses_of_one_process(user_job: Callable[..., Any], losses_of_one_process: Any) -> None:
    settings = {"sagemaker_distributed_dataparallel_enabled": "true", "batch": "16"}
    ran = user_job({"train.py": TRAINER}, "train.py", settings, environment={"BERTH_PROCESSES_PER_HOST": "2"})
    assert losses(ran, ranks=2) == losses_of_one_process


@pytest.mark.nightly
def test_cpu_image_serves_full_checkpoint_of_two_partitions(
    user_job: Callable[..., Any], tiny_model: Path, tmp_path: Path, serve_model: ServeModel
) -> None:
    ran = user_job(
        {"train.py": (SCRIPTS / "questions_smp.py").read_text()},
        "train.py",
        {"mp_parameters": '{"partitions": 2}', "model": "/opt/ml/input/data/model"},
        model=tiny_model,
        environment=TWO_RANKS,
    )
    assert ran.outcome.exit_code == 0, ran.log
    assert "taught: 2 partitions, loss 0.0" in ran.log
    unpack(ran.outcome.model_archive, tmp_path / "model")
    assert (tmp_path / "model" / "pytorch_model.bin").is_file()
    served = serve_model(tmp_path / "model")
    status, answer, _ = served.ask({"question": "Where is it?", "context": "It is in the house by the sea."})
    assert (status, answer["answer"]) == (200, "by the sea")
    assert answer["score"] > 0.9


@pytest.mark.nightly
def test_split_model_answers_like_model_of_one_process(
    user_job: Callable[..., Any], pretrained: Path, tmp_path: Path, serve_model: ServeModel
) -> None:
    """Two partitions × two tensor parallel ranks, which have one and two of the three heads, and unequal answers."""
    model = write_model(tmp_path / "initial", pretrained, layers=2, hidden=48, heads=3)
    options = {
        **{"partitions": 2, "tensor_parallel_degree": 2, "microbatches": 2, "ddp": True},
        **{"auto_partition": False, "default_partition": 0},
    }
    four_ranks = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "4"}
    files = {"train.py": (SCRIPTS / "questions_split.py").read_text()}
    ways: list[tuple[str, dict[str, str], dict[str, str], str]] = [
        ("one-process", {}, {}, "one process, loss"),
        ("split", {"mp_parameters": json.dumps(options)}, four_ranks, r"2 partitions × 2 tensor ranks, [1-9]\d* split"),
    ]
    answers = []
    for way, settings, environment, printed in ways:
        settings |= {"way": way, "model": "/opt/ml/input/data/model"}
        ran = user_job(files, "train.py", settings, model=model, environment=environment)
        assert ran.outcome.exit_code == 0, ran.log
        assert re.search(f"trained: {printed}", ran.log)
        unpack(ran.outcome.model_archive, tmp_path / way)
        answers.append(ask_split_questions(serve_model(tmp_path / way)))
    one_process, four = answers
    assert [answer["answer"] for answer in four] == [answer["answer"] for answer in one_process]
    assert [answer["score"] for answer in four] == pytest.approx([answer["score"] for answer in one_process], abs=1e-5)
    assert len({answer["answer"] for answer in four}) > 4, "the model must have learnt several answers"


def ask_split_questions(served: Served) -> list[dict[str, Any]]:
    """The three best answers to each question of questions_split.py, one after the other."""
    answers = []
    for question in questions_split.ANSWERS:
        inputs = {"question": question, "context": questions_split.CONTEXT}
        body = json.dumps({"inputs": inputs, "parameters": {"top_k": 3}}).encode()
        status, best, _ = served.request("/invocations", body)
        assert status == 200, best
        answers += best
    return answers
