"""evaluate.load and datasets.load_metric work without a network, as well-known scripts call them."""

import json
from pathlib import Path

import docker
import pytest
from docker.types import Mount

from berth.common.containers import Access, run_once
from tests.images.train.conftest import IMAGE

PROGRAM = """
import json, socket, sys
lookups = []
sys.addaudithook(lambda event, arguments: lookups.append(arguments) if event.startswith("socket.getaddrinfo") else None)
from datasets import load_metric
import evaluate

def squad(*texts):
    return {"id": "1", "answers": {"text": list(texts), "answer_start": [0] * len(texts)}}

results = {
    "squad": evaluate.load("squad").compute(
        predictions=[{"id": "1", "prediction_text": "eiffel tower"}], references=[squad("The Eiffel Tower")]),
    "squad_v2": load_metric("squad_v2").compute(
        predictions=[{"id": "1", "prediction_text": "", "no_answer_probability": 0.25}], references=[squad()]),
    "mrpc": load_metric("glue", "mrpc", trust_remote_code=True).compute(
        predictions=[0, 1, 1, 1], references=[0, 1, 0, 1]),
    "cola": evaluate.load("glue", config_name="cola").compute(predictions=[0, 1, 1, 1], references=[0, 1, 0, 1]),
    "stsb": evaluate.load("glue", "stsb").compute(predictions=[0.0, 1.0, 3.0], references=[0.0, 2.0, 4.0]),
    "accuracy": evaluate.combine(["accuracy"]).compute(predictions=[0, 1], references=[0, 0]),
    "multilabel": evaluate.load("accuracy", "multilabel").compute(
        predictions=[[0, 1], [1, 1]], references=[[0, 1], [1, 0]]),
    "batches": evaluate.load("accuracy", experiment_id="mine"),
}
metric = results["batches"]
for prediction, reference in [(1, 1), (0, 1)]:
    metric.add_batch(predictions=[prediction], references=[reference])
results["batches"] = metric.compute(normalize=False)
assert not lookups, lookups
try:
    evaluate.load("f1")
except Exception as error:
    results["f1"] = type(error).__name__
open("squad/squad.py", "w").write('''
import datasets
import evaluate
class Mine(evaluate.Metric):
    def _info(self):
        kind = datasets.Value("string")
        return evaluate.MetricInfo(description="", citation="", inputs_description="",
            features=datasets.Features({"predictions": kind, "references": kind}))
    def _compute(self, predictions, references):
        return {"mine": len(predictions)}
''')
results["local"] = evaluate.load("squad").compute(predictions=["a"], references=["a"])
print(json.dumps(results))
"""


def test_metrics_work_without_a_network(client: docker.DockerClient, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    mount = Mount("/program", str(tmp_path), type="bind", read_only=True)
    # Start it from a shell, not by berth's wrapper.
    shell = "mkdir -p /tmp/work/squad && cd /tmp/work && HF_HUB_OFFLINE=1 python /program/program.py"
    printed = run_once(client, IMAGE, ["bash", "-c", shell], Access([mount])).decode()
    assert json.loads(printed.splitlines()[-1]) == {
        "squad": {"exact_match": 100.0, "f1": 100.0},
        "squad_v2": {
            **{"exact": 100.0, "f1": 100.0, "total": 1, "NoAns_exact": 100.0, "NoAns_f1": 100.0, "NoAns_total": 1},
            **{"best_exact": 100.0, "best_exact_thresh": 0.0, "best_f1": 100.0, "best_f1_thresh": 0.0},
        },
        "mrpc": {"accuracy": 0.75, "f1": pytest.approx(0.8)},
        "cola": {"matthews_correlation": pytest.approx(0.5773502691896258)},
        "stsb": {"pearson": pytest.approx(0.9819805060619657), "spearmanr": pytest.approx(1.0)},
        "accuracy": {"accuracy": 0.5},
        "multilabel": {"accuracy": 0.5},
        "batches": {"accuracy": 1.0},
        "f1": "FileNotFoundError",
        "local": {"mine": 1},
    }
