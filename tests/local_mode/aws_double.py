"""A double of AWS for the SDK of this environment, v2 or v3.

Nothing is sent: botocore validates each request with AWS's service model, and the SDK gets an answer of the right
shape.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from botocore.client import BaseClient
from botocore.validate import ParamValidator

ROLE = "arn:aws:iam::111122223333:role/any"
ANSWERS = {
    # SageMaker's answers about objects that were created just now.
    "DescribeModel": {"ModelName": "berth"},
    "DescribeEndpointConfig": {"EndpointConfigName": "berth"},
    # Answers of other services: the account, the role's permissions, the buckets.
    "GetCallerIdentity": {"Account": "111122223333"},
    "GetRole": {"Role": {"Arn": ROLE}},
    "ListBuckets": {"Buckets": []},
}


class Checker(ParamValidator):  # type: ignore[misc]
    """botocore's validation of a request, and also of patterns, which botocore leaves to AWS."""

    def _validate_string(self, param: Any, shape: Any, errors: Any, name: str) -> None:
        super()._validate_string(param, shape, errors, name)
        pattern = shape.metadata.get("pattern")
        if pattern and r"\p" not in pattern:  # classes of characters that Python does not know
            assert re.fullmatch(pattern, param), f"{name}: {param!r} does not match {pattern}"


Answer = Callable[[dict[str, Any]], dict[str, Any]]
requests: dict[str, Any] = {}
"""SageMaker's requests, by operation."""


def install(answers: Mapping[str, Answer]) -> None:
    """Keeps all clients of this process from sending anything. `answers` override those of this module."""

    def call(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Replaces botocore's call."""
        model = client.meta.service_model
        report = Checker().validate(parameters, model.operation_model(operation).input_shape)
        assert not report.has_errors(), report.generate_report()
        if model.service_name == "sagemaker":
            requests[operation] = parameters
        answer = answers.get(operation)
        return answer(parameters) if answer else ANSWERS.get(operation, {})

    BaseClient._make_api_call = call
