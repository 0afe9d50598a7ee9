"""Serves the classifier: a request is {"inputs": "a text"} or {"inputs": ["a text", "another"]}."""

from typing import Any

from transformers import pipeline


def model_fn(model_dir: str) -> Any:
    return pipeline("text-classification", model_dir, truncation=True)
