"""Hosts as networks really have them: containers with one host name, and hosts that are told apart by the job alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Excerpt = Callable[[str, int], dict[str, Any]]


def test_two_containers_of_one_host_name_meet_and_train(
    lone_hosts: Callable[..., Any],
    channels: Callable[..., dict[str, Path]],
    tiny_model: Path,
    excerpt: Excerpt,
    unexpected_lines: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    """On SageMaker every host is `aws` to itself; only the network knows it by its own name."""
    data = channels(train=excerpt("train", 16)) | {"model": tiny_model}
    hyperparameters = {"do_train": "True", "max_steps": "2", "per_device_train_batch_size": "4"}
    with lone_hosts(data, hyperparameters, hostname="aws") as containers:
        codes = {host: container.wait(timeout=180)["StatusCode"] for host, container in containers.items()}
        logs = {host: container.logs().decode() for host, container in containers.items()}
    assert codes == {"algo-1": 0, "algo-2": 0}
    assert "weights: the same on all 2 ranks" in logs["algo-1"]
    assert json.loads((tmp_path / "algo-1/model/metrics.json").read_text())["world_size"] == 2
    assert not list((tmp_path / "algo-2/model").iterdir()), "only the leader writes the model"
    assert unexpected_lines("\n".join(logs.values())) == []
