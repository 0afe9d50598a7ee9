"""Limits on the bodies of models that share an endpoint."""

from pathlib import Path

import pytest

from berth.serve.limits import MEBIBYTE
from tests.unit.serve.in_process import ONE, error_of
from tests.unit.serve.models.endpoint import Endpoint, add_model

pytestmark = pytest.mark.slow

COUNTS = (
    "def model_fn(model_dir): ...\ndef transform_fn(model, body, content_type, accept):\n    return str(len(body))\n"
)


def test_each_model_has_its_own_body_limits(endpoint: Endpoint, tiny_model: Path) -> None:
    for name, folder in (
        ("ours", add_model(endpoint, "ours", tiny_model)),
        ("counts", add_model(endpoint, "counts", inference_py=COUNTS)),
    ):
        assert endpoint.load(name, folder).status_code == 200
    body = b"x" * 5_000_000
    headers = {"content-type": "image/png"}
    assert endpoint.client.post("/models/counts/invoke", content=body, headers=headers).text == "5000000"
    refused = endpoint.client.post("/models/counts/invoke", content=b"x" * (25 * MEBIBYTE + 1), headers=headers)
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in error_of(refused)[2]
    refused = endpoint.client.post("/models/ours/invoke", content=body)
    assert error_of(refused)[:2] == (413, "too_large")
    assert "BERTH_MAX_REQUEST_TOKENS" in error_of(refused)[2]
    assert endpoint.client.post("/models/ours/invoke", json={"inputs": ONE}).status_code == 200
    too_long = endpoint.client.post("/models", content=b" " * (MEBIBYTE + 1))
    assert error_of(too_long)[:2] == (413, "too_large")
