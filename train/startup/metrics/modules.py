"""The four metrics as classes of evaluate, with the same features, arguments and keys as the modules on its hub.

The classes must have these names: evaluate derives a metric's name from its class.
"""

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate
import numpy.typing as npt

from berth.train.startup.metrics import figures

_ANSWERS = {"text": datasets.Value("string"), "answer_start": datasets.Value("int32")}
_REFERENCE = {"id": datasets.Value("string"), "answers": datasets.Sequence(_ANSWERS)}


def _info(features: dict[str, Any], format: str | None = None) -> Any:
    return evaluate.MetricInfo(
        description="berth's implementation, with the values of the module of this name on the hub.",
        citation="",
        inputs_description="",
        features=datasets.Features(features),
        format=format,
    )


class Squad(evaluate.Metric):  # type: ignore[misc]
    """EM and F1 of SQuAD v1.1."""

    def _info(self) -> Any:
        prediction = {"id": datasets.Value("string"), "prediction_text": datasets.Value("string")}
        return _info({"predictions": prediction, "references": _REFERENCE})

    def _compute(self, predictions: Sequence[dict[str, Any]], references: Sequence[dict[str, Any]]) -> dict[str, float]:
        texts = {prediction["id"]: prediction["prediction_text"] for prediction in predictions}
        return figures.squad(texts, references)


class SquadV2(evaluate.Metric):  # type: ignore[misc]
    """The scores of SQuAD v2.0."""

    def _info(self) -> Any:
        prediction = {
            "id": datasets.Value("string"),
            "prediction_text": datasets.Value("string"),
            "no_answer_probability": datasets.Value("float32"),
        }
        return _info({"predictions": prediction, "references": _REFERENCE})

    def _compute(
        self,
        predictions: Sequence[dict[str, Any]],
        references: Sequence[dict[str, Any]],
        no_answer_threshold: float = 1.0,
    ) -> dict[str, float]:
        texts = {prediction["id"]: prediction["prediction_text"] for prediction in predictions}
        no_answer = {prediction["id"]: prediction["no_answer_probability"] for prediction in predictions}
        return figures.squad_v2(texts, no_answer, references, no_answer_threshold)


class Glue(evaluate.Metric):  # type: ignore[misc]
    """The metrics of the GLUE task in config_name."""

    def _info(self) -> Any:
        figures.check_task(self.config_name)
        kind = datasets.Value("float32" if self.config_name == "stsb" else "int64")
        return _info({"predictions": kind, "references": kind}, format="numpy")

    def _compute(self, predictions: npt.NDArray[Any], references: npt.NDArray[Any]) -> dict[str, float]:
        return figures.glue(self.config_name, predictions, references)


class Accuracy(evaluate.Metric):  # type: ignore[misc]
    """The share of correct labels, or their number with normalize=False."""

    def _info(self) -> Any:
        kind = datasets.Value("int32")
        kind = datasets.Sequence(kind) if self.config_name == "multilabel" else kind
        return _info({"predictions": kind, "references": kind})

    def _compute(
        self,
        predictions: Sequence[Any],
        references: Sequence[Any],
        normalize: bool = True,  # noqa: FBT001, FBT002
        sample_weight: Sequence[float] | None = None,
    ) -> dict[str, float]:
        from sklearn.metrics import accuracy_score

        score = accuracy_score(references, predictions, normalize=normalize, sample_weight=sample_weight)
        return {"accuracy": float(score)}
