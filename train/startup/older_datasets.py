"""Lets an older datasets library read files of newer ones, and work with a newer pyarrow.

datasets before 4 does not know List, the type that a newer one stores for columns of lists, such as tokens. So
load_from_disk of data saved on a user's machine fails with "must be called with a dataclass type or instance".

datasets before 2.15 stores the type of its array columns (Array2D to Array5D) as a pickle, which pyarrow 14 to 20 load
only if that is enabled. So map or load_from_disk of images fail with "Arrow type extension<…> does not have a datasets
dtype equivalent". If it is enabled, a data set can run code in the job, as with the pyarrow of that time.

berth.train.startup.start_hook calls it after the import of datasets.features.features.
"""

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def after_features(module: ModuleType) -> None:
    """Patch datasets.features.features after its import; newer versions that don't need it are not changed."""
    generate = getattr(module, "generate_from_dict", None)
    if generate is not None and not dataclasses.is_dataclass(getattr(module, "List", None)):
        # For nested types the function calls itself by this name, so it also calls the patched one.
        module.generate_from_dict = with_lists(generate, module.Sequence)  # type: ignore[attr-defined]
    load_pickled_types(getattr(module, "_ArrayXDExtensionType", None))


def with_lists(generate: Callable[[Any], Any], sequence: Callable[..., Any]) -> Callable[[Any], Any]:
    """Wrap datasets' `generate_from_dict`, which makes features from a file's description, so that it accepts List.

    A List becomes the older `sequence`, or a Python list if its elements have several columns.
    """

    @functools.wraps(generate)
    def generated(described: Any) -> Any:
        if not isinstance(described, dict) or described.get("_type") != "List":
            return generate(described)
        inside = described["feature"]
        feature = generated(inside)
        if isinstance(inside, dict) and "_type" not in inside:
            return [feature]
        return sequence(feature=feature, length=described.get("length", -1))

    return generated


def load_pickled_types(arrays: type | None) -> None:
    """Let pyarrow load pickled column types, if the type `arrays` is stored as a pickle."""
    import pyarrow

    pickled = getattr(pyarrow, "PyExtensionType", None)
    if pickled is not None and arrays is not None and issubclass(arrays, pickled):
        pickled.set_auto_load(True)
