"""run_qa in real containers, on one host and on two: from data to a model.tar.gz that can be served."""

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
from safetensors.numpy import load

from berth.common import labels
from berth.local import cleanup
from tests.conftest import Excerpt

pytestmark = pytest.mark.transformers5

# The metric definitions with which notebooks read a job's log.
PATTERNS = {
    "train_runtime": r"train_runtime.*=\D*(.*?)$",
    "train_samples_per_second": r"train_samples_per_second.*=\D*(.*?)$",
    "epoch": r"epoch.*=\D*(.*?)$",
    "f1": r"f1.*=\D*(.*?)$",
    "exact_match": r"exact_match.*=\D*(.*?)$",
}
SERVABLE = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "metrics.json"}


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {
            member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None
        }  # a link has no content


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.nightly), 2], ids=["one-host", "two-hosts"])
def job(
    request: pytest.FixtureRequest,
    train_job: Callable[..., Any],
    tiny_model: Path,
    excerpt: Excerpt,
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """A complete job on one host or on two, with its number of hosts; two hosts get their model as a model.tar.gz."""
    data = tmp_path_factory.mktemp("data")
    for channel, name in {"train": "train", "validation": "heldout"}.items():
        (data / channel).mkdir()
        (data / channel / "squad.json").write_text(json.dumps(excerpt(name, 24)))
    channels = {name: data / name for name in ("train", "validation")}
    if request.param == 2:  # as the SDK's model_uri delivers the model of an earlier job
        channels["model"] = data / "model"
        channels["model"].mkdir()
        with tarfile.open(channels["model"] / "model.tar.gz", "w:gz") as packed:
            packed.add(tiny_model, arcname=".")
    ran = train_job(
        channels,
        model=tiny_model if request.param == 1 else None,
        hosts=request.param,
        hyperparameters={
            "do_train": "True",
            "do_eval": "True",
            "per_device_train_batch_size": "4",
            "num_train_epochs": "1",
            "max_seq_length": "384",
            "doc_stride": "128",
            "max_steps": "3",
            "output_dir": "/opt/ml/model",
        },
        environment={"BERTH_TRACE": "2-3"},
    )
    assert ran.outcome.exit_code == 0, ran.log
    return ran, request.param


def test_archive_contains_servable_model(job: Any) -> None:
    ran, _ = job
    assert set(read(ran.outcome.model_archive)) >= SERVABLE
    assert ran.outcome.failures == {}


def test_model_files_are_readable_for_all_users(job: Any) -> None:
    ran, _ = job
    with tarfile.open(ran.outcome.model_archive) as archive:
        modes = {member.name: member.mode & 0o777 for member in archive if member.name.strip("./")}
        wanted = {member.name: 0o755 if member.isdir() else 0o644 for member in archive if member.name.strip("./")}
    assert modes == wanted


def test_metric_definitions_of_notebooks_match_once(job: Any) -> None:
    ran, _ = job
    for name, pattern in PATTERNS.items():
        values = [match[1] for _, line in ran.lines if (match := re.search(pattern, line))]
        assert len(values) == 1, f"{name}: {values}"
        assert re.fullmatch(r"\d+(\.\d+)?", values[0]), f"{name}: {values}"
    metrics = json.loads(read(ran.outcome.model_archive)["metrics.json"])
    assert {"train_runtime", "eval_f1", "eval_exact_match"} <= set(metrics)


def test_output_contains_trace_of_each_rank(job: Any) -> None:
    ran, hosts = job
    assert ran.log.count("| trace: steps 2 to 3  step: ") == 1
    files = read(ran.outcome.output_archive)
    names = [f"trace/trace-rank-{rank}-step-{step}.json.gz" for rank in range(hosts) for step in (2, 3)]
    assert [name for name in sorted(files) if name.startswith("trace/")] == names


def test_launch_plan_is_logged_before_the_first_step(job: Any) -> None:
    ran, hosts = job
    lines = [line for _, line in ran.lines]
    step = next(index for index, line in enumerate(lines) if "step 1 of 3" in line)
    plan = "\n".join(lines[:step])
    plan_starts = [index for index, line in enumerate(lines) if line == "algo-1 | berth: launch plan"]
    assert len(plan_starts) == 1, "the complete plan must be logged once"
    assert [line for line in lines if "launch plan: " in line] == [
        line for line in lines if line.startswith("algo-2 | berth: launch plan: ranks 1 on each host, 2 in all")
    ], "every other host must log one line"
    assert plan.count("launch plan") == hosts
    assert f"ranks: 1 on each host, {hosts} in all, by mpirun" in plan
    assert len([line for line in lines if line.startswith("algo-1 | berth:   ")]) <= 6


def test_every_host_exits_soon_after_the_last_rank(job: Any) -> None:
    ran, hosts = job
    last = ran.when(r"done: model, metrics\.json and history\.json")
    assert len(ran.ended) == hosts
    late = {host: round(ended - last, 2) for host, ended in ran.ended.items()}
    print(f"seconds from the last rank's last line to the exit of the host: {late}")
    assert max(late.values()) < 2.0, late


def test_digest_in_metrics_is_that_of_the_saved_weights(job: Any) -> None:
    """metrics.json contains the digest that the ranks compared."""
    ran, hosts = job
    files = read(ran.outcome.model_archive)
    digest = hashlib.sha256()
    for name, weight in sorted(load(files["model.safetensors"]).items()):
        digest.update(name.encode())
        digest.update(weight.tobytes())
    assert json.loads(files["metrics.json"])["weights_sha256"] == digest.hexdigest()
    assert ("weights: the same on all 2 ranks" in ran.log) == (hosts == 2)


def test_no_container_network_or_record_remains(job: Any, client: docker.DockerClient) -> None:
    mine = {"label": f"{labels.PID}={os.getpid()}"}
    assert client.containers.list(all=True, filters=mine) == []
    assert client.networks.list(filters=mine) == []
    records = [json.loads(path.read_text()) for path in cleanup.scratch_root().glob(f"*/{cleanup.RECORD}")]
    assert str(os.getpid()) not in {record[labels.PID] for record in records}


def test_log_has_no_warning(job: Any, unexpected_lines: Callable[..., list[str]]) -> None:
    ran, _ = job
    assert unexpected_lines(ran.log) == []
