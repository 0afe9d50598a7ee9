"""Patches evaluate.load and datasets.load_metric to return our metrics without the network; other names are unchanged.

evaluate's own load first connects to its hub. In a closed network this fails, perhaps after the script has trained for
hours.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = {"squad": "Squad", "squad_v2": "SquadV2", "glue": "Glue", "accuracy": "Accuracy"}
"""Name for evaluate.load → class in berth.train.startup.metrics.modules."""
_DOWNLOAD_ARGUMENTS = ("path", "module_type", "download_config", "download_mode", "revision")


def after_evaluate(loading: ModuleType) -> None:
    """Patch `load` of evaluate.loading after its import, before other modules import it from there. Skips a user's own
    package of that name.
    """
    if not hasattr(loading, "evaluation_module_factory"):
        return
    loading.load = with_ours(loading.load)  # type: ignore[attr-defined]


def after_datasets(datasets: ModuleType) -> None:
    """Patch datasets.load_metric after the import of datasets, or add it: datasets 3.0 removed it, but older scripts
    call it. Skips a user's own module of that name.
    """
    if not hasattr(datasets, "load_dataset"):
        return
    original = getattr(datasets, "load_metric", None)
    datasets.load_metric = with_ours(original) if original else _load_metric  # type: ignore[attr-defined]


def with_ours(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap evaluate's `load` or datasets' `load_metric` to return our metrics for our names. A script of that name in
    the working directory takes precedence.
    """
    signature = inspect.signature(load)
    kwargs_name = next((name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD), "")

    @functools.wraps(load)
    def load_ours(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options).arguments
        if not is_ours(bound["path"], bound.get("module_type")):
            return load(*arguments, **options)
        from berth.train.startup.metrics import modules

        metric_options = bound.pop(kwargs_name, {})
        named = {name: value for name, value in bound.items() if name not in _DOWNLOAD_ARGUMENTS}
        return getattr(modules, OURS[bound["path"]])(**named, **metric_options)

    return load_ours


def is_ours(path: str, module_type: str | None, here: Path = Path()) -> bool:
    """Whether `path` names a metric of ours, and not the user's script of that name in the working directory `here`."""
    return path in OURS and module_type in (None, "metric") and not (here / path / f"{path}.py").is_file()


def _load_metric(path: str, config_name: str | None = None, **options: Any) -> Any:
    """datasets.load_metric, implemented with evaluate.load."""
    import evaluate

    return evaluate.load(path, config_name, **options)
