"""The SDKs of these environments still send what tests/unit/train plans with, and tests/unit/serve serves by."""

from pathlib import Path
from typing import Any

import pytest

from tests.local_mode.moto_here import moto_server
from tests.local_mode.recorded import PROGRAMS, kept, record


@pytest.mark.parametrize(
    ("file", "version", "program"),
    [(file, version, program) for file, programs in PROGRAMS.items() for version, program in programs.items()],
)
def test_the_sdk_sends_what_is_recorded(file: str, version: int, program: str, tmp_path: Path) -> None:
    now = record(program, version, tmp_path)
    assert now == kept(file)[f"v{version}"], "the SDK sends something else: see what, then `make requests`"


def test_a_spot_job_with_checkpoints_is_taken_by_the_control_plane_and_refused_by_local_mode(run_sdk: Any) -> None:
    with moto_server() as address:
        said, _ = run_sdk(Path(__file__).with_name("spot_job.py"), address)
    assert said == {
        "job": {
            "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"},
            "EnableManagedSpotTraining": True,
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
        },
        "checkpoints": "Setting checkpoint_s3_uri is not supported in local mode.",
        "spot": "Spot training is not supported in local mode.",
    }
