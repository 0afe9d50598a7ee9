"""The Python in README, docs/sdk.md, docs/gpu.md and docs/spot.md requests a training job with the real SDKs.

Lines for local mode are replaced by the AWS variants in their comments.
"""

import re
from typing import Any

import pytest

from berth.images.pins import pins
from tests.local_mode.aws_double import ROLE
from tests.local_mode.conftest import requests_of

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


def programs() -> list[tuple[str, int, str]]:
    """Every Python block that starts a job: its place, SDK version and text."""
    found = []
    for page in ("README.md", "docs/sdk.md", "docs/gpu.md", "docs/spot.md"):
        text = (pins.ROOT / page).read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        jobs = [block for block in blocks if "ModelTrainer(" in block or "Estimator(" in block]
        found += [
            (f"{page}-{number}", 3 if "ModelTrainer(" in block else 2, block) for number, block in enumerate(jobs)
        ]
    return found


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The requests of all programs by place. One process per version runs them: importing the SDK takes seconds."""
    work = tmp_path_factory.mktemp("pages")
    (work / "src").mkdir()
    (work / "src" / "train.py").write_text("print(1)\n")
    commands: dict[int, dict[str, list[str]]] = {2: {}, 3: {}}
    for place, version, program in programs():
        for local, remote in (ON_AWS | {'"src"': repr(str(work / "src"))}).items():
            program = program.replace(local, remote)
        file = work / f"{place.replace('/', '-')}.py"
        file.write_text(f"role = {ROLE!r}\n{program}")
        commands[version][place] = [str(file)]
    made: dict[str, dict[str, Any]] = {}
    for version, by_place in commands.items():
        made |= dict(zip(by_place, requests_of(list(by_place.values()), version=version, work=work), strict=True))
    return made


@pytest.mark.parametrize("place", [place for place, *_ in programs()])
def test_programs_in_pages_request_a_training_job(place: str, requests: dict[str, dict[str, Any]]) -> None:
    job = requests[place]["CreateTrainingJob"]
    assert job["AlgorithmSpecification"]["TrainingImage"].startswith("111122223333.dkr.ecr.")
    if "spot" in place:
        assert job["EnableManagedSpotTraining"]
        assert job["CheckpointConfig"]["S3Uri"] == "s3://BUCKET/checkpoints/my-job"
        assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 129600}
