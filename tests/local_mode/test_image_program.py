"""The image's own program (ENV SAGEMAKER_PROGRAM): SDK v2's local mode and `run train` run it alike."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.images.pins import pins
from tests.local_mode.test_sdk_v2 import TRAIN

PROGRAM = """
import json, os, sys
from pathlib import Path
channels = sorted(os.listdir("/opt/ml/input/data"))
code = sorted(os.listdir("/opt/ml/code"))
print("found:", json.dumps({"arguments": sys.argv, "channels": channels, "code": code}))
Path("/opt/ml/model/weights").write_text("1")
"""


@pytest.fixture
def image(client: docker.DockerClient, tmp_path: Path) -> Iterator[str]:
    context = tmp_path / "image"
    context.mkdir()
    (context / "train.py").write_text(PROGRAM)
    lines = (f"FROM {TRAIN}", "COPY train.py /opt/ml/code/train.py", "ENV SAGEMAKER_PROGRAM=train.py")
    (context / "Dockerfile").write_text("\n".join(lines))
    tag = "berth-test:own-program"
    client.images.build(path=str(context), tag=tag, rm=True)
    yield tag
    client.images.remove(tag, force=True)


def test_image_program_runs_alike_in_the_sdk_and_run_train(image: str, fit: Any, tmp_path: Path) -> None:
    data = tmp_path / "data/train"
    data.mkdir(parents=True)
    (data / "rows.csv").write_text("1\n")
    result = fit(image_uri=image, hyperparameters={"epochs": 3}, inputs={"train": str(data)})
    assert "error" not in result, result["log"]
    words = ("--image", image, "--data", str(data.parent), "-p", "epochs=3", "--output", str(tmp_path / "out"))
    job = subprocess.run(
        [sys.executable, str(pins.ROOT / "build.py"), "run", "train", *words], capture_output=True, text=True
    )
    assert job.returncode == 0, job.stdout + job.stderr
    seen = [json.loads(re.findall(r"found: (\{.*\})", log)[-1]) for log in (result["log"], job.stdout)]
    assert seen[0] == seen[1]
    assert seen[1] == {"arguments": ["train.py", "--epochs", "3"], "channels": ["train"], "code": ["train.py"]}
    assert (tmp_path / "out/model.tar.gz").is_file()
