"""The SDKs still send the recorded requests that tests/unit/train and tests/unit/serve use."""

from pathlib import Path
from typing import Any

import pytest

from tests.local_mode.moto_here import moto_server
from tests.local_mode.recorded import PROGRAMS, read_recorded, record


@pytest.mark.parametrize(
    ("file", "version", "program"),
    [(file, version, program) for file, programs in PROGRAMS.items() for version, program in programs.items()],
)
def test_sdk_still_sends_the_recorded_requests(file: str, version: int, program: str, tmp_path: Path) -> None:
    now = record(program, version, tmp_path)
    assert now == read_recorded(file)[f"v{version}"], (
        "the SDK sends other requests: check the difference, then run `make requests`"
    )


def test_spot_job_is_accepted_by_aws_and_refused_by_local_mode(run_sdk: Any) -> None:
    with moto_server() as address:
        result, _ = run_sdk(Path(__file__).with_name("spot_job.py"), address)
    assert result == {
        "job": {
            "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"},
            "EnableManagedSpotTraining": True,
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
        },
        "checkpoints": "Setting checkpoint_s3_uri is not supported in local mode.",
        "spot": "Spot training is not supported in local mode.",
    }
