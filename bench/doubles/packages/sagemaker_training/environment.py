"""A double of sagemaker_training.environment."""

import json
import os
from typing import Any


class Environment:
    """Reads SM_FRAMEWORK_PARAMS."""

    @property
    def additional_framework_parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(os.environ.get("SM_FRAMEWORK_PARAMS", "{}"))
        return found
