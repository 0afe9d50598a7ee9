"""A batch transform's container: /execution-parameters, and the variables that SageMaker sets."""

from pathlib import Path

import pytest

from tests.images.serve.conftest import Serve
from tests.images.serve.served import Served


@pytest.fixture(scope="module")
def served(serve_model: Serve, model_with_graph: Path) -> Served:
    environment = {
        "SAGEMAKER_BATCH": "true",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "2",
        "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "3",
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "application/jsonlines",
        "SAGEMAKER_SAFE_PORT_RANGE": "9000-9100",
    }
    return serve_model(model_with_graph, environment)


def test_execution_parameters_follow_workers_and_payload(served: Served) -> None:
    assert served.request("/execution-parameters")[:2] == (
        200,
        {"MaxConcurrentTransforms": 1, "BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 2},
    )
    assert "595 s for a request" in served.log()
    assert "set, and without effect on this server: SAGEMAKER_SAFE_PORT_RANGE" in served.log()
