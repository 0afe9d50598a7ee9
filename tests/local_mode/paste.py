"""Runs a pasted snippet under the SDK of this environment, up to the calls that would reach AWS; prints those as JSON.

Arguments: the snippet. The SDK's own classes are made with their own arguments; `fit` and `deploy` are checked against
their signatures and go no further.
"""

import inspect
import json
import sys
from typing import Any

from sagemaker.estimator import Estimator
from sagemaker.model import Model


def recorded(owner: type, name: str, calls: list[str]) -> None:
    signature = inspect.signature(getattr(owner, name))

    def call(self: Any, *args: Any, **named: Any) -> None:
        signature.bind(self, *args, **named)
        image = self.image_uri if isinstance(self, Model) else self.training_image_uri()
        calls.append(f"{owner.__name__}.{name} {image}")

    setattr(owner, name, call)


calls: list[str] = []
recorded(Estimator, "fit", calls)
recorded(Model, "deploy", calls)
exec(sys.argv[1], {"role": "arn:aws:iam::111122223333:role/any"})
print("RESULT " + json.dumps(calls))
