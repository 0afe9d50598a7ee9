"""TensorBoard events are where SageMaker looks for them, and have the log's figures."""

import json
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.types import Mount

from berth.common.containers import Access, run_once
from tests.images.train.conftest import IMAGE

pytestmark = pytest.mark.transformers5

# A record is: length, its checksum, event, its checksum (tensorflow.org/tutorials/load_data/tfrecord).
READ = """
import glob, json, struct
from tensorboardX.proto.event_pb2 import Event
values = {}
for path in glob.glob("/events/events.out.tfevents.*"):
    data = open(path, "rb").read()
    while data:
        (size,) = struct.unpack_from("<Q", data)
        for value in Event.FromString(data[12 : 12 + size]).summary.value:
            values[value.tag] = value.simple_value
        data = data[16 + size :]
print(json.dumps(values))
"""


@pytest.mark.nightly
def test_tensorboard_events_equal_metrics_and_history(
    lone_hosts: Any, client: docker.DockerClient, tiny_model: Path, channels: Any, excerpt: Any, tmp_path: Path
) -> None:
    data = channels(train=excerpt("train", 16), validation=excerpt("heldout", 16)) | {"model": tiny_model}
    settings = {"max_steps": "3", "per_device_train_batch_size": "4", "export_openvino": "false"}
    settings |= {"model_name_or_path": "/opt/ml/input/data/model"}
    with lone_hosts(data, settings, hosts=1) as containers:
        assert containers["algo-1"].wait(timeout=180)["StatusCode"] == 0
    folder = tmp_path / "algo-1/output/tensorboard"
    mounts = (Mount("/events", str(folder), type="bind", read_only=True),)
    events = json.loads(run_once(client, IMAGE, ["python", "-c", READ], Access(mounts=mounts)))
    metrics = json.loads((tmp_path / "algo-1/model/metrics.json").read_text())
    history = json.loads((tmp_path / "algo-1/model/history.json").read_text())
    last = [entry for entry in history if "loss" in entry][-1]
    for tag, value in {
        "train/loss": last["loss"],
        "train/learning_rate": last["learning_rate"],
        "train/examples_per_second": last["examples_per_second"],
        "train/tokens_per_second": last["tokens_per_second"],
        "eval/f1": metrics["eval_f1"],
        "eval/exact_match": metrics["eval_exact_match"],
    }.items():
        assert abs(events[tag] - value) < 1e-3 * max(1, abs(value)), tag
