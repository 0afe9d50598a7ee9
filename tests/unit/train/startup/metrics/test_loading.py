"""Which metrics evaluate.load and load_metric take from berth. tests/images/train computes them."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from berth.train.startup import metrics
from berth.train.startup.metrics import loading


@pytest.mark.parametrize(
    ("path", "module_type", "ours"),
    [
        ("squad", None, True),
        ("squad_v2", "metric", True),
        ("accuracy", None, True),
        ("accuracy", "comparison", False),
        ("glue", None, False),
        ("f1", None, False),
        ("./squad", None, False),
        ("someone/squad", None, False),
        ("mine", None, False),
    ],
)
def test_is_ours_unless_the_user_has_a_script(path: str, module_type: str | None, ours: bool, tmp_path: Path) -> None:
    for folder in ("squad", "glue"):
        (tmp_path / folder).mkdir()
    (tmp_path / "glue/glue.py").touch()
    assert loading.is_ours(path, module_type, tmp_path) == ours


def test_other_metrics_are_loaded_by_evaluate() -> None:
    calls: list[Any] = []

    def load(path: str, config_name: str | None = None, module_type: str | None = None, **init_kwargs: Any) -> str:
        calls.append((path, config_name, module_type, init_kwargs))
        return "theirs"

    module = ModuleType("evaluate.loading")
    module.load = load  # type: ignore[attr-defined]
    loading.after_evaluate(module)
    assert module.load is load, "a user's own evaluate/loading.py is not patched"
    module.evaluation_module_factory = None  # type: ignore[attr-defined]
    loading.after_evaluate(module)
    assert module.load("f1", "multi", seed=1) == "theirs"
    assert module.load(path="squad", module_type="comparison") == "theirs"
    assert calls == [("f1", "multi", None, {"seed": 1}), ("squad", None, "comparison", {})]


def test_load_metric_returns_ours_with_any_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def own(path: str, config_name: str | None = None, **metric_init_kwargs: Any) -> str:
        calls.append((path, config_name, metric_init_kwargs))
        return "theirs"

    old = ModuleType("datasets")
    old.load_metric = own  # type: ignore[attr-defined]
    loading.after_datasets(old)
    assert old.load_metric is own, "a user's own datasets.py is not patched"
    old.load_dataset = None  # type: ignore[attr-defined]
    loading.after_datasets(old)
    assert old.load_metric("f1", "multi", seed=1) == "theirs"
    assert calls == [("f1", "multi", {"seed": 1})]
    ours = ModuleType(
        "berth.train.startup.metrics.modules"
    )  # evaluate, which the real one imports, is only in the image
    ours.Glue = lambda **given: given  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, ours.__name__, ours)
    monkeypatch.setattr(metrics, "modules", ours, raising=False)
    assert old.load_metric("glue", "mrpc", seed=1) == {"config_name": "mrpc", "seed": 1}
    assert len(calls) == 1

    new = ModuleType("datasets")
    loading.after_datasets(new)
    assert not hasattr(new, "load_metric"), "a user's own datasets.py is not patched"
    new.load_dataset = None  # type: ignore[attr-defined]
    loading.after_datasets(new)
    assert callable(new.load_metric)
