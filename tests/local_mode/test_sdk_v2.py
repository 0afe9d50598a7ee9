"""SDK v2's generic Estimator in local mode: the recipe of well-known notebooks on one and two hosts; an endpoint."""

import json
import os
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.images.pins import pins
from berth.local.serve.endpoint import EndpointOptions, ask, deploy

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
TRAIN, SERVE = f"berth-train:{PROFILE}", f"berth-serve:{PROFILE}"
RECIPE = {
    "model_name_or_path": "/opt/ml/input/data/model",
    "dataset_name": "squad",
    "do_train": True,
    "do_eval": True,
    "fp16": True,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "num_train_epochs": 1,
    "max_seq_length": 384,
    "max_steps": 4,
    "pad_to_max_length": True,
    "doc_stride": 128,
    "output_dir": "/opt/ml/model",
}
# The metric_definitions of that recipe's notebooks.
METRICS = {
    "train_runtime": r"train_runtime.*=\D*(.*?)$",
    "train_samples_per_second": r"train_samples_per_second.*=\D*(.*?)$",
    "epoch": r"epoch.*=\D*(.*?)$",
    "f1": r"f1.*=\D*(.*?)$",
    "exact_match": r"exact_match.*=\D*(.*?)$",
}


@pytest.fixture
def inputs(tmp_path: Path, pretrained: Path, excerpt: Any) -> dict[str, str]:
    for channel, name, questions in (("train", "train", 40), ("validation", "heldout", 8)):
        folder = tmp_path / "data" / channel
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text(json.dumps(excerpt(name, questions)))
    # A copy, because the SDK refuses channels below /root, where the checkout may be.
    shutil.copytree(pretrained, tmp_path / "data" / "model")
    return {channel: str(tmp_path / "data" / channel) for channel in ("train", "validation", "model")}


def long_question(excerpt: Any) -> dict[str, str]:
    """A question whose context has many times 384 tokens."""
    paragraphs = [each["paragraphs"][0] for each in excerpt("heldout", 12)["data"]]
    context = "\n".join(each["context"] for each in paragraphs)
    assert len(context.split()) > 800  # and a word is a token or more
    return {"question": paragraphs[7]["qas"][0]["question"], "context": context}


def captured(regex: str, log: str) -> list[str]:
    """The values that a metric's regular expression finds in a log, without host prefixes and colours."""
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).partition(" | ")[2].rstrip() for line in log.splitlines()]
    return [found[1] for found in (re.search(regex, line) for line in plain) if found]


@pytest.mark.parametrize(("hosts", "way"), [pytest.param(1, "Model", marks=pytest.mark.nightly), (2, "estimator")])
def test_recipe_trains_and_its_endpoint_answers(
    hosts: int, way: str, fit: Any, inputs: dict[str, str], excerpt: Any
) -> None:
    questions = [
        {"question": "What is used for inference?", "context": "This model is used with sagemaker for inference."},
        long_question(excerpt),
    ]
    result = fit(
        image_uri=TRAIN,
        serve_image_uri=SERVE,
        instance_count=hosts,
        hyperparameters=RECIPE,
        inputs=inputs,
        questions=questions,
        ways=[way],
    )
    assert "error" not in result, result["error"]
    for name, regex in METRICS.items():
        values = captured(regex, result["log"])
        assert len(values) == 1, f"{name}: {values}"
        assert re.fullmatch(r"\d+(\.\d+)?", values[0]), f"{name}: {values}"

    archive = Path(result["model_data"].removeprefix("file://"))
    with tarfile.open(archive) as tar:
        files = {member.name.removeprefix("./"): member for member in tar}
        metrics = json.loads(tar.extractfile(files["metrics.json"]).read())  # type: ignore[union-attr]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files.keys()
    assert not [name for name in files if name.startswith("checkpoint")]
    assert f"ranks: 1 on each host, {hosts} in all" in result["log"]
    assert metrics["world_size"] == hosts  # the ranks that formed the group

    deployed = result[way]
    assert deployed["list"] == deployed["answers"]
    for question, answer in zip(questions, deployed["answers"], strict=True):
        assert answer["answer"] == question["context"][answer["start"] : answer["end"]]
    with deploy(EndpointOptions(archive, SERVE, port=None)) as endpoint:
        direct = [ask(endpoint.url, **question) for question in questions]
    assert direct == deployed["answers"]


def test_failure_on_two_hosts_reaches_the_estimator(fit: Any, inputs: dict[str, str]) -> None:
    result = fit(
        image_uri=TRAIN,
        instance_count=2,
        hyperparameters={**RECIPE, "lerning_rate": 3e-5},
        inputs=inputs,
    )
    assert "error" in result
    assert "did you mean learning_rate" in result["log"]


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU here (no nvidia-smi)")
def test_recipe_trains_with_instance_type_local_gpu(
    fit: Any, inputs: dict[str, str], client: docker.DockerClient
) -> None:
    if not client.images.list("berth-train:cu130"):
        pytest.skip("berth-train:cu130 is not built: `make gpu-images` builds it")
    result = fit(image_uri="berth-train:cu130", instance_type="local_gpu", hyperparameters=RECIPE, inputs=inputs)
    assert "error" not in result, result["error"]
