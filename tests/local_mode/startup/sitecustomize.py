"""Python imports this module when a program of a SageMaker SDK starts (sdk.py).

With a config file, which turns telemetry off, the SDK reads each of some twenty settings of a job from it. Each time it
also checks its own constant JSON schema, which takes 0.15 s. This module leaves out that check.
"""

import os
from typing import Any

from jsonschema import Draft202012Validator


def no_check(*_: Any, **__: Any) -> None:
    pass


os.environ.pop("PYTHONPATH")  # not for programs that the SDK starts, such as docker-compose
Draft202012Validator.check_schema = no_check
