"""Runs a batch transform in local mode with SDK v2, and every way in which the SDK splits a file.

Usage: python transform.py JSON, with example (code to run, without AWS credentials), image_uri, model_data (an archive)
and cuts (file, content type, SplitType and strategy each). Prints one line, RESULT and JSON: for each cut the request
bodies that the SDK makes of the file, each with its answer.
"""

import json
import os
import sys
from typing import Any

from sagemaker.local import LocalSession
from sagemaker.local.data import get_batch_strategy_instance, get_splitter_instance
from sagemaker.model import Model

for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    os.environ.pop(name, None)

job = json.loads(sys.argv[1])
exec(job["example"], {})

session = LocalSession()
model = Model(
    job["image_uri"],
    model_data=f"file://{job['model_data']}",
    role="arn:aws:iam::111122223333:role/dummy",
    sagemaker_session=session,
    env={"SAGEMAKER_BATCH": "True"},
)
model.deploy(1, "local", endpoint_name="cuts", wait=False)
exchanges: list[list[tuple[str, Any]]] = []
for file, content_type, split_type, strategy in job["cuts"]:
    batches = get_batch_strategy_instance(strategy, get_splitter_instance(split_type))
    exchanges.append([])
    for body in batches.pad(file, 1):
        answer = session.sagemaker_runtime_client.invoke_endpoint(body, "cuts", content_type, content_type)
        text = body if isinstance(body, str) else body.decode()
        exchanges[-1].append((text, answer["Body"].read().decode()))
session.sagemaker_client.delete_endpoint("cuts")
print("RESULT " + json.dumps(exchanges))
