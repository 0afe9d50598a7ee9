"""The estimators of examples/, taken by the real SDKs, v2 and v3: what they ask AWS for, none of which is sent."""

from typing import Any

import pytest

from berth.images import pins
from tests.local_mode.aws_double import ROLE

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth:1"


@pytest.mark.parametrize("version", [2, 3])
def test_question_answering_with_smddp(version: int, paste: Any) -> None:
    program = str(pins.ROOT / "examples" / "question_answering_smddp" / f"launch_v{version}.py")
    given = ["--image", URI, "--role", ROLE, "--instance-type", "ml.p4d.24xlarge", "--instance-count", "2"]
    code = f"import runpy, sys\nsys.argv = {[program, *given]!r}\nrunpy.run_path({program!r}, run_name='__main__')"
    job = paste(code, version=version)["CreateTrainingJob"]
    assert job["AlgorithmSpecification"]["TrainingImage"] == URI
    assert job["ResourceConfig"] | {"VolumeSizeInGB": 30} == {
        "InstanceType": "ml.p4d.24xlarge",
        "InstanceCount": 2,
        "VolumeSizeInGB": 30,
    }
    assert job["HyperParameters"]["epochs"] == "4"
    asked = job["HyperParameters"].get("sagemaker_distributed_dataparallel_enabled")
    assert asked == ("true" if version == 2 else None), "SDK v3 has no setting for it"
