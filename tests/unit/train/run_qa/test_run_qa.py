"""Tests whole jobs of run_qa, on one rank and on two, with a tiny BERT and synthetic SQuAD.

They check log lines, files, and that the ranks train together.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
)

from berth.contract.metric_definitions import METRIC_DEFINITIONS
from berth.images.pins import pins
from berth.train.run_qa.reporting.phases import PHASES
from berth.train.run_qa.reporting.report import METRIC_PATTERNS
from tests.unit.train.run_qa.conftest import capitals

# The hyperparameters of the well-known notebook, as a plain Estimator sends them (strings), with tiny sizes.
NOTEBOOK = {
    "model_name_or_path": "bert-large-uncased-whole-word-masking",
    "dataset_name": "squad",
    "do_train": "True",
    "do_eval": "True",
    "fp16": "True",
    "per_device_train_batch_size": "4",
    "per_device_eval_batch_size": "4",
    "num_train_epochs": "1",
    "max_seq_length": "40",
    "doc_stride": "8",
    "max_steps": "4",
    "pad_to_max_length": "True",
    "output_dir": "/opt/ml/model",
}


def captures(log: str) -> dict[str, list[str]]:
    """The captures of each metric pattern in the lines of a log."""
    return {
        pattern: [match[1] for line in log.splitlines() if (match := re.search(pattern, line))]
        for pattern in METRIC_PATTERNS
    }


def measured(log: str) -> dict[str, list[float]]:
    """Name → values that SageMaker finds in a log with METRIC_DEFINITIONS; names without a value are omitted."""
    values = {
        each["Name"]: [float(match[1]) for line in log.splitlines() if (match := re.search(each["Regex"], line))]
        for each in METRIC_DEFINITIONS
    }
    return {name: captured for name, captured in values.items() if captured}


LINES_WITH_NUMBERS = re.compile(r"step \d+ of \d+  |trace: step|summary  |\w+ = |(?:HasAns|NoAns|test)_\w+: ")
NUMBER = re.compile(r"([\w/]+(?: [\w/]+)*)(?: =|:) +(\d[\w.+-]*)")


def names_without_metric(log: str) -> set[str]:
    """The names of numbers in a log that no metric definition captures."""
    names = set()
    for line in filter(LINES_WITH_NUMBERS.match, log.splitlines()):
        read = {match.start(1) for each in METRIC_DEFINITIONS if (match := re.search(each["Regex"], line))}
        names |= {each[1] for each in NUMBER.finditer(line) if each.start(2) not in read}
    return names


SECOND_LOSS_IS_NAN = """
import itertools, transformers
whole, number = transformers.Trainer.training_step, itertools.count()
def training_step(self, *arguments):
    return whole(self, *arguments) * (float("nan") if next(number) == 1 else 1)
transformers.Trainer.training_step = training_step
"""
PROGRESS_METRICS = {"loss", "learning_rate", "examples_per_second", "tokens_per_second", "padding_percent", "memory_gb"}
# The time left is not a number, and the table's scores are also logged as `eval_f1 = …`.
NOT_CAPTURED = {"left", "exact match", "F1"}
METRICS_OF_EVERY_JOB = {
    *PROGRESS_METRICS,
    *("epoch", "train_loss", "train_runtime", "train_samples_per_second"),
    *("eval_loss", "eval_exact_match", "eval_f1"),
    *(f"seconds_{phase}" for phase in (*PHASES, "total")),
    *("job_examples_per_second", "job_tokens_per_second", "job_padding_percent"),
}


@pytest.mark.slow
def test_notebook_hyperparameters_unchanged(
    tmp_path: Path, tiny_model: Path, new_job: Any, clean_environment: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, NOTEBOOK)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/pytorch_model.bin").write_bytes(b"from an earlier job")
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "berth.train.run_qa"],
        env=clean_environment | {"SAGEMAKER_BASE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    took = time.monotonic() - began
    out, err = result.stdout, result.stderr
    assert result.returncode == 0, err
    values, metrics = measured(out + err), job.metrics()
    assert names_without_metric(out + err) == NOT_CAPTURED
    assert values.keys() == METRICS_OF_EVERY_JOB
    assert [len(values[name]) for name in ("loss", "tokens_per_second")] == [2, 2], (
        "a line for the first and the last step"
    )
    assert all(len(values[name]) == 1 for name in values.keys() - PROGRESS_METRICS)
    assert values["eval_f1"] == [pytest.approx(metrics["eval_f1"], abs=1e-4)]
    assert values["job_tokens_per_second"] == [pytest.approx(metrics["tokens_per_second"], abs=1)]
    assert took - 5 < sum(metrics["seconds"].values()) < took, "the phases cover the whole process"
    for name in ("metrics.json", "history.json"):
        assert (tmp_path / "output/data" / name).read_text() == (tmp_path / "model" / name).read_text()
    assert "training to step 4" in ElementTree.parse(tmp_path / "output/data/training.svg").getroot()[0].text
    for pattern, captured in captures(out + err).items():
        assert len(captured) == 1, (pattern, captured)
        float(captured[0])
        assert re.fullmatch(r"\d+\.\d+", captured[0]), (pattern, captured)
    assert f"eval_f1 = {metrics['eval_f1']:.4f}".rstrip("0") in out
    assert metrics["train_steps"] == 4
    assert metrics["eval_samples"] == 10
    assert "warning: fp16 needs a GPU" in out
    assert "train data: channel train (not dataset_name squad)" in out
    assert "\r" not in out + err
    assert [entry["step"] for entry in job.history()] == [1, 2, 3, 4, 4]
    assert job.history()[-1]["f1"] == metrics["eval_f1"]
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "metrics.json", "history.json"} <= names
    assert not names & {"pytorch_model.bin", "training_args.bin"}
    assert not (tmp_path / "checkpoints").exists()
    predictions = json.loads((tmp_path / "output/data/eval_predictions.json").read_text())
    assert sorted(predictions) == [f"q{number}" for number in range(20, 30)]
    AutoModelForQuestionAnswering.from_pretrained(tmp_path / "model")
    assert AutoTokenizer.from_pretrained(tmp_path / "model").is_fast


@pytest.mark.slow
def test_two_ranks_train_together(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """The weights of two ranks must equal those of one process with the joint batch, not those of one rank alone."""
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps) for rank in (0, 1)]
    alone = new_job(tmp_path / "alone", tiny_model, few_steps)
    joint = new_job(tmp_path / "joint", tiny_model, few_steps | {"per_device_train_batch_size": "4"})
    ends = host.run(*pair)
    for job in (alone, joint):
        host.run(job)
    assert "weights: the same on all 2 ranks" in ends[0].out
    assert ends[1].out == "", "only rank 0 writes to the log"
    assert not (pair[1].base / "model").exists(), "only rank 0 writes the model"
    assert pair[0].metrics()["world_size"] == 2
    assert pair[0].metrics()["epoch"] == joint.metrics()["epoch"] > alone.metrics()["epoch"]
    # The speed counts both ranks, so its tokens per window equal those of one process with the same windows.
    each_window = [
        job.metrics()["tokens_per_second"] / job.metrics()["examples_per_second"] for job in (pair[0], joint)
    ]
    assert each_window[0] == pytest.approx(each_window[1], rel=1e-3)
    together, solo, reference = pair[0].weights(), alone.weights(), joint.weights()
    assert max((together[name] - reference[name]).abs().max().item() for name in together) < 1e-5
    assert max((together[name] - solo[name]).abs().max().item() for name in together) > 1e-3
    # Two ranks evaluate each window once, so the scores equal those of one process.
    for name in ("eval_f1", "eval_exact_match"):
        assert pair[0].metrics()[name] == joint.metrics()[name]
    assert pair[0].metrics()["eval_loss"] == pytest.approx(joint.metrics()["eval_loss"], abs=1e-4)


def losses_are_numbers(log: str) -> list[bool]:
    """For each progress line, whether its loss is a number."""
    return [not loss.startswith(("nan", "inf")) for loss in re.findall(r"loss: (\S+)", log)]


@pytest.mark.slow
def test_diverged_training_writes_no_model(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """The loss is NaN from the second step on; transformers would record it as 0."""
    hyperparameters = few_steps | {"do_eval": "false", "logging_steps": "1", "log_seconds": "0"}
    job = new_job(tmp_path, tiny_model, hyperparameters | {"learning_rate": "1e38", "max_grad_norm": "0"})
    (end,) = host.run(job, code=1)
    assert "Training diverged: the model's weights are not numbers" in end.err
    assert losses_are_numbers(end.out) == [True, False, False, False, False]
    history = json.loads((job.base / "output/data/history.json").read_text())
    assert ["loss" in entry for entry in history] == [True, False, False, False, False]
    assert not list((job.base / "model").glob("*.safetensors"))


@pytest.mark.slow
def test_single_nan_loss_does_not_affect_later_losses(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    hyperparameters = few_steps | {"do_eval": "false", "logging_steps": "1", "log_seconds": "0"}
    job = new_job(tmp_path, tiny_model, hyperparameters)
    job.before = SECOND_LOSS_IS_NAN
    (end,) = host.run(job)
    assert losses_are_numbers(end.out) == [True, False, True, True, True]
    assert ["loss" in entry for entry in job.history()] == [True, False, True, True, True]
    assert "train_loss = nan" in end.out
    assert "train_loss" not in measured(end.out)
    assert "train_loss" not in job.metrics()


@pytest.mark.nightly
def test_int8_export_is_measured_or_refused(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    hyperparameters = few_steps | {"export_int8": "true", "int8_few_questions": "true", "int8_max_f1_loss": "100"}
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, hyperparameters) for rank in (0, 1)]
    ends = host.run(*pair)
    assert "\nint8: on 10 questions int8 has F1 " in ends[0].out
    assert "\nmodel: its int8 graph adds " in ends[0].out
    assert all(len(captured) == 1 for captured in captures(ends[0].out + ends[0].err).values()), (
        "the int8 lines must match no pattern"
    )
    graph = pair[0].base / "model/openvino"
    manifest = json.loads((graph / "graph.json").read_text())["precisions"]["int8"]
    assert manifest["questions"] == 10
    values = measured(ends[0].out)
    assert values.keys() == METRICS_OF_EVERY_JOB | {"int8_f1", "int8_exact_match"}
    assert [*values["int8_f1"], *values["int8_exact_match"]] == [
        pytest.approx(manifest[name], abs=0.01) for name in ("int8_f1", "int8_exact_match")
    ]
    assert manifest["fp32_f1"] == pytest.approx(pair[0].metrics()["eval_f1"], abs=1e-3)
    (end,) = host.run(new_job(tmp_path / "few", tiny_model, few_steps | {"export_int8": "true"}), code=1)
    assert end.err.startswith("berth: error: int8 was requested, but there are only 10 questions to measure its loss")
    assert "step 1" not in end.out, "the job must fail before the training"


@pytest.mark.slow
def test_dataset_name_and_packed_model(tmp_path: Path, tiny_model: Path, host: Any, new_job: Any) -> None:
    """The datasets library loads dataset_name, here a folder with unanswerable questions. The model is an archive."""
    job = new_job(tmp_path, tiny_model, {})
    shutil.rmtree(tmp_path / "input/data")
    (tmp_path / "input/data/model").mkdir(parents=True)
    with tarfile.open(tmp_path / "input/data/model/model.tar.gz", "w:gz") as packed:
        packed.add(tiny_model, arcname=".")
    rows = [
        {"id": question["id"], "question": question["question"], "context": paragraph["context"], "answers": question}
        for paragraph in capitals(range(12))["data"][0]["paragraphs"]
        for question in paragraph["qas"]
    ]
    for number, row in enumerate(rows):
        answers = row["answers"]["answers"] if number % 3 else []
        row["answers"] = {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}
    (tmp_path / "named").mkdir()
    for split in ("train", "validation"):
        lines = "\n".join(json.dumps(row) for row in rows)
        (tmp_path / "named" / f"{split}.jsonl").write_text(lines)
    hyperparameters = {
        "dataset_name": str(tmp_path / "named"),
        "cache_dir": str(tmp_path / "cache"),
        "version_2_with_negative": "True",
        "null_score_diff_threshold": "-0.5",
        "max_steps": "2",
        "max_train_samples": "6",
        "do_train": "True",
        "do_eval": "True",
        "do_predict": "True",
        "test_file": str(tmp_path / "test.json"),
        "max_seq_length": "48",
        "doc_stride": "8",
    }
    (tmp_path / "test.json").write_text(json.dumps(capitals(range(30, 34))))
    (tmp_path / "input/config/hyperparameters.json").write_text(json.dumps(hyperparameters))
    (end,) = host.run(job)
    assert "train data: the first 6 questions" in end.out
    assert [len(captured) for captured in captures(end.out + end.err).values()] == [1, 1, 1, 1, 1]
    assert job.metrics()["eval_NoAns_total"] == 4
    assert json.loads((tmp_path / "model/config.json").read_text())["null_score_diff_threshold"] == -0.5
    by_kind = {f"{kind}_{name}" for kind in ("HasAns", "NoAns") for name in ("exact", "f1", "total")}
    values = measured(end.out + end.err)
    assert names_without_metric(end.out + end.err) == NOT_CAPTURED
    assert values.keys() == METRICS_OF_EVERY_JOB | by_kind | {"test_exact_match", "test_f1"}
    assert values["NoAns_total"] == [4]
    assert values["test_f1"] == [pytest.approx(job.metrics()["test_f1"], abs=1e-4)]
    assert len(json.loads((tmp_path / "output/data/test_predictions.json").read_text())) == 4


def test_predictions_need_neither_answers_nor_ids(tmp_path: Path, tiny_model: Path, host: Any, new_job: Any) -> None:
    job = new_job(
        tmp_path, tiny_model, {"do_train": "False", "do_eval": "False", "do_predict": "True", "doc_stride": "8"}
    )
    shutil.rmtree(tmp_path / "input/data/train")
    questions = capitals(range(3))
    for paragraph in questions["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            del question["answers"], question["id"]
    (tmp_path / "input/data/test").mkdir()
    (tmp_path / "input/data/test/given.json").write_text(json.dumps(questions))
    (end,) = host.run(job)
    predictions = json.loads((tmp_path / "output/data/test_predictions.json").read_text())
    assert list(predictions) == [f"given.json, article 1, paragraph {number}, question 1" for number in (1, 2, 3)]
    assert "the predictions are not measured" in end.out
    assert not any(name.startswith("test_") for name in job.metrics())


def test_error_goes_to_the_failure_file_if_there_is_one(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any
) -> None:
    failure_file = tmp_path / "sentence"
    (end,) = host.run(
        new_job(tmp_path, tiny_model, {"learning_rat": "1"}), BERTH_FAILURE_FILE=str(failure_file), code=1
    )
    assert "learning_rat is not known (did you mean learning_rate?)" in failure_file.read_text()
    assert "learning_rat" not in end.out + end.err, "only the entry logs the error"
    many = {f"learning_rate_{number}": "1" for number in range(20)}
    (end,) = host.run(new_job(tmp_path / "many", tiny_model, many), BERTH_FAILURE_FILE=str(failure_file), code=1)
    assert "learning_rate_19" in end.err, "the entry truncates a long error, so run_qa logs it, too"


EXITS = """
import atexit, threading, time
from berth.train.run_qa.program import exit_now
atexit.register(print, "atexit")
threading.Thread(target=time.sleep, args=(900,)).start()
print("output", end=" ")
exit_now(3)
"""


@pytest.mark.nightly
def test_exit_now_flushes_and_runs_atexit_functions() -> None:
    result = subprocess.run([sys.executable, "-P", "-c", EXITS], capture_output=True, text=True, timeout=600)
    assert (result.returncode, result.stdout, result.stderr) == (3, "output atexit\n", "")


# The replacement of smddp.
IMPORTS_DOUBLE = f"import sys; sys.path.insert(0, {str(pins.ROOT / 'tests/doubles/smdistributed_double/src')!r})"


@pytest.mark.nightly
def test_smddp_gives_the_same_result_as_gloo(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    jobs = {
        backend: [new_job(tmp_path / backend / str(rank), tiny_model, few_steps) for rank in (0, 1)]
        for backend in ("gloo", "smddp")
    }
    host.run(*jobs["gloo"])
    for job in jobs["smddp"]:
        job.before = IMPORTS_DOUBLE
    leader, _ = host.run(*jobs["smddp"], BERTH_BACKEND="smddp")
    assert "ranks: 2, smddp, CPU" in leader.out
    assert "weights: the same on all 2 ranks" in leader.out
    over_gloo, over_smddp = jobs["gloo"][0].metrics(), jobs["smddp"][0].metrics()
    for name in ("weights_sha256", "train_loss", "eval_f1", "eval_exact_match", "eval_loss"):
        assert over_smddp[name] == over_gloo[name], name
