"""Runs a pasted snippet under the SDK of this environment, v2 or v3, as far as the request for a job or an endpoint.

Usage: python paste.py SNIPPET. Nothing is sent: botocore checks each request against AWS's own description of it, and
the SDK gets an answer in the shape that it reads. Prints RESULT and, as JSON, SageMaker's requests by operation.
"""

import json
import os
import re
import sys
from typing import Any

from botocore.client import BaseClient
from botocore.validate import ParamValidator

ROLE = "arn:aws:iam::111122223333:role/any"
LAST = ("CreateTrainingJob", "CreateEndpoint")
ANSWERS = {
    # Of SageMaker, to what asks for what was made just now.
    "DescribeModel": {"ModelName": "berth"},
    "DescribeEndpointConfig": {"EndpointConfigName": "berth"},
    # Of other services: whose account this is, what the role may, which buckets there are.
    "GetCallerIdentity": {"Account": "111122223333"},
    "GetRole": {"Role": {"Arn": ROLE}},
    "ListBuckets": {"Buckets": []},
}


class Checker(ParamValidator):  # type: ignore[misc]
    """botocore's check of a request, which knows the patterns of names and leaves them to AWS."""

    def _validate_string(self, param: Any, shape: Any, errors: Any, name: str) -> None:
        super()._validate_string(param, shape, errors, name)
        pattern = shape.metadata.get("pattern")
        assert not pattern or re.fullmatch(pattern, param), f"{name}: {param!r} does not match {pattern}"


requests: dict[str, Any] = {}


def answer(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """In the place of botocore's call."""
    model = client.meta.service_model
    report = Checker().validate(parameters, model.operation_model(operation).input_shape)
    assert not report.has_errors(), report.generate_report()
    if model.service_name == "sagemaker":
        requests[operation] = parameters
    if operation in LAST:
        print("RESULT " + json.dumps(requests), flush=True)
        os._exit(0)  # an exception of any kind would be caught by v3
    return ANSWERS.get(operation, {})


BaseClient._make_api_call = answer
exec(sys.argv[1], {"role": ROLE})
