"""The Python in README, docs/sdk.md, docs/gpu.md and docs/spot.md requests a training job with the real SDKs.

Lines for local mode are replaced by the AWS variants in their comments.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from berth.images.pins import pins

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train:1.0"
ON_AWS = {
    "session = LocalSession()": "session = None",
    'session.config = {"local": {"local_code": True}}': "",
    "training_mode=Mode.LOCAL_CONTAINER,": "role=role,",
    '"berth-train:cpu"': f'"{URI}"',
    '"berth-serve:cpu"': f'"{URI}"',
    '"local_cpu"': '"ml.m5.xlarge"',
    '"local"': '"ml.m5.xlarge"',
    '"file://': '"s3://BUCKET/',
    '"data/train"': '"s3://BUCKET/train"',
    '"data/validation"': '"s3://BUCKET/validation"',
    '"minilm"': '"s3://BUCKET/model"',
    '"s3://BUCKET/…/model.tar.gz"': '"s3://BUCKET/model.tar.gz"',
}


def programs() -> list[Any]:
    """Every Python block that starts a job, with its place and SDK version."""
    found = []
    for page in ("README.md", "docs/sdk.md", "docs/gpu.md", "docs/spot.md"):
        text = (pins.ROOT / page).read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        jobs = [block for block in blocks if "ModelTrainer(" in block or "Estimator(" in block]
        found += [
            pytest.param(block, 3 if "ModelTrainer(" in block else 2, id=f"{page}-{number}")
            for number, block in enumerate(jobs)
        ]
    return found


@pytest.mark.parametrize(("program", "version"), programs())
def test_programs_in_pages_request_a_training_job(program: str, version: int, paste: Any, tmp_path: Path) -> None:
    for local, remote in ON_AWS.items():
        program = program.replace(local, remote)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    program = program.replace('"src"', repr(str(tmp_path / "src")))
    job = paste(program, version=version)["CreateTrainingJob"]
    assert job["AlgorithmSpecification"]["TrainingImage"].startswith("111122223333.dkr.ecr.")
    if "spot" in program:
        assert job["EnableManagedSpotTraining"]
        assert job["CheckpointConfig"]["S3Uri"] == "s3://BUCKET/checkpoints/my-job"
        assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 129600}
