"""Run by the environment of SDK v2: a batch transform in local mode.

Usage: python transform.py JSON, with image_uri, model_data (an archive), data (a folder), content_type, strategy, work
(a folder to write in) and output (one to write the answers to). Prints one line, RESULT and JSON.
"""

import json
import socket
import sys
import tempfile
from pathlib import Path

import boto3
from sagemaker.local import LocalSession
from sagemaker.model import Model

ROLE = "arn:aws:iam::111122223333:role/dummy"

job = json.loads(sys.argv[1])
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
session = LocalSession(boto3.Session(region_name="us-east-1"))
root = tempfile.mkdtemp(dir=Path(job["work"]))
session.config = {"local": {"local_code": True, "container_root": root, "serving_port": port}}
model = Model(job["image_uri"], model_data=f"file://{job['model_data']}", role=ROLE, sagemaker_session=session)
transformer = model.transformer(
    1,
    "local",
    strategy=job["strategy"],
    assemble_with="Line",
    accept=job["content_type"],
    output_path=f"file://{job['output']}",
    max_payload=1,
)
# The job is over when it returns; waiting would ask AWS for its log.
transformer.transform(f"file://{job['data']}", content_type=job["content_type"], split_type="Line", wait=False)
written = {path.name: path.read_text() for path in Path(job["output"]).rglob("*") if path.is_file()}
print("RESULT " + json.dumps(written))
