"""evaluate.load and datasets.load_metric, as well-known scripts call them: the names of ours are answered here, before
the network is asked; any other name goes its usual way.

evaluate's own load asks its hub first, which a closed network does not have, and a script that has trained for hours
ends there.
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
    """For evaluate.loading, once it is imported: its `load` knows ours, and so do all that import it from there. A
    user's own package of that name is left alone.
    """
    if not hasattr(loading, "evaluation_module_factory"):
        return
    loading.load = with_ours(loading.load)  # type: ignore[attr-defined]


def after_datasets(datasets: ModuleType) -> None:
    """For datasets, once it is imported: the `load_metric` that it had before 3.0, for scripts of that time, and where
    it has one, ours before it. A user's own module of that name is left alone.
    """
    if not hasattr(datasets, "load_dataset"):
        return
    before = getattr(datasets, "load_metric", None)
    datasets.load_metric = with_ours(before) if before else _load_metric  # type: ignore[attr-defined]


def with_ours(load: Callable[..., Any]) -> Callable[..., Any]:
    """evaluate's `load`, or datasets' own `load_metric`, with our metrics. A script of that name in the working
    directory still goes before them.
    """
    signature = inspect.signature(load)
    further = next((name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD), "")

    @functools.wraps(load)
    def answered(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        if not is_ours(given["path"], given.get("module_type")):
            return load(*arguments, **options)
        from berth.train.startup.metrics import modules

        more = given.pop(further, {})
        own = {name: value for name, value in given.items() if name not in _DOWNLOAD_ARGUMENTS}
        return getattr(modules, OURS[given["path"]])(**own, **more)

    return answered


def is_ours(path: str, module_type: str | None, here: Path = Path()) -> bool:
    """Whether that name is for us: a metric of ours, and no script of the user's, which evaluate finds in `here`."""
    return path in OURS and module_type in (None, "metric") and not (here / path / f"{path}.py").is_file()


def _load_metric(path: str, config_name: str | None = None, **options: Any) -> Any:
    """datasets.load_metric, by evaluate's load."""
    import evaluate

    return evaluate.load(path, config_name, **options)
