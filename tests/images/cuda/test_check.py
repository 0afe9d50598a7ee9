"""gpu-check in the images, on the CPU."""

import json
from collections.abc import Callable

import pytest
from docker.models.images import Image

Python = Callable[..., str]
RUN = """
import json, subprocess, sys
words = [sys.executable, "-P", "-m", "berth.runtime.gpu.bench.check", "--device", "cpu", "--json", "/tmp/check.json"]
result = subprocess.run(words, capture_output=True, text=True)
records = json.load(open("/tmp/check.json"))["checks"]
print(json.dumps([result.returncode, {each["name"]: each["status"] for each in records}, result.stdout]))
"""


@pytest.mark.timeout(600)
def test_gpu_check_passes_on_the_cpu(image: Image, python: Python) -> None:
    code, statuses, table = json.loads(python(RUN).splitlines()[-1])
    assert code == 0, table
    assert statuses == {
        "all-reduce": "ok",
        "matrix-product": "ok",
        "training-step": "ok",
        "inference": {"train": "skipped", "serve": "ok"}[image.labels["berth.kit"]],
    }, table
    assert all(name in table for name in statuses)
