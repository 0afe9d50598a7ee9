"""Scores a prediction file with Google's copy of the official scripts; runs in the reference environment.

`python squad_reference.py VERSION DATA.json PREDICTIONS.json`, VERSION 1.1 or 2.0; prints JSON.
Needs `tf-models-official` (Apache-2.0) and absl-py, nothing of TensorFlow.
"""

import json
import sys
from pathlib import Path

from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0


def load(path: str) -> dict:
    return json.loads(Path(path).read_text(encoding="utf-8"))


if __name__ == "__main__":
    version, data, predictions = sys.argv[1:]
    articles = load(data)["data"]
    if version == "1.1":
        scores = squad_evaluate_v1_1.evaluate(articles, load(predictions))
    else:
        scores = squad_evaluate_v2_0.evaluate(articles, load(predictions))
    print(json.dumps(scores))
