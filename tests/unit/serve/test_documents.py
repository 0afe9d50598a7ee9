"""serve/README.md says what the server does: errors with their status, parameters, paths and variables."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from berth.images import pins
from berth.serve.codecs import CODECS
from berth.serve.errors import STATUS
from berth.serve.limits import MEBIBYTE, RequestLimits
from berth.serve.request import Parameters

PAGE = (pins.ROOT / "serve/README.md").read_text("utf-8")


def test_every_error_and_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d{3})", PAGE, re.MULTILINE))
    assert rows == {str(kind): str(int(status)) for kind, status in STATUS.items()}


@pytest.mark.parametrize("name", [field.name for field in fields(Parameters)])
def test_every_parameter(name: str) -> None:
    assert re.search(rf"^\| `{name}`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("media_type", CODECS)
def test_every_type(media_type: str) -> None:
    assert re.search(rf"^\| `{media_type}`", PAGE, re.MULTILINE)


def test_every_variable_that_the_server_reads() -> None:
    read = set()
    for path in [*(pins.ROOT / "serve").rglob("*.py"), pins.ROOT / "runtime/engines/choose.py"]:
        read |= set(re.findall(r'"((?:SAGEMAKER|BERTH|HF)_[A-Z_]+)"', Path(path).read_text("utf-8")))
    # Ours to set for libraries, and what the platform's libraries read.
    others = {"HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY", "HF_HOME"}
    others |= {"SAGEMAKER_BASE_DIR", "SAGEMAKER_SAFE_PORT_RANGE", "SAGEMAKER_REGION", "SAGEMAKER_TS_"}
    missing = {name for name in read - others if f"`{name}`" not in PAGE}
    assert not missing


def test_how_large_a_body_may_be() -> None:
    held, batch = (RequestLimits(batch=batch) for batch in (False, True))
    row = next(line for line in PAGE.splitlines() if line.startswith("| `SAGEMAKER_MAX_PAYLOAD_IN_MB`"))
    assert f"{_mebibytes(held.body_of_tokens)}, and {_mebibytes(batch.body_of_tokens)} in a batch transform" in row
    assert f"{_mebibytes(held.body)} hold, and {_mebibytes(batch.body)} in a batch transform" in row
    security = (pins.ROOT / "SECURITY.md").read_text("utf-8")
    told = f"| bytes of a body | {_mebibytes(held.body)}, and {_mebibytes(batch.body)} in a batch transform"
    assert told in security


def _mebibytes(size: int) -> str:
    assert size % MEBIBYTE == 0
    return f"{size // MEBIBYTE} MiB"
