"""An older datasets next to newer files and a newer pyarrow: has it read what it could not.

Before 4 it knows no List, as which a newer one keeps each column of lists, tokens among them: load_from_disk of what
a user's own machine saved ends in "must be called with a dataclass type or instance". Before 2.15 it keeps the type of
its columns of arrays (Array2D to Array5D) as a pickle, which pyarrow 14 to 20 load only if told to: map or
load_from_disk of images end in "Arrow type extension<…> does not have a datasets dtype equivalent". Told so, a data set
of the job's own may run code, as it could with the pyarrow of that time. Called by berth.train.startup.start_hook once
a program has imported datasets.features.features.
"""

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def after_features(module: ModuleType) -> None:
    """For datasets.features.features, once it is imported; what a newer one does by itself is left alone."""
    generate = getattr(module, "generate_from_dict", None)
    if generate is not None and not dataclasses.is_dataclass(getattr(module, "List", None)):
        # It calls itself by this name for what is inside.
        module.generate_from_dict = with_lists(generate, module.Sequence)  # type: ignore[attr-defined]
    load_pickled_types(getattr(module, "_ArrayXDExtensionType", None))


def with_lists(generate: Callable[[Any], Any], sequence: Callable[..., Any]) -> Callable[[Any], Any]:
    """datasets' `generate_from_dict`, which makes features of what a file says, with List as the `sequence` of old; a
    list of several columns has no other form there than a Python list.
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
    """Have pyarrow load the types of columns that are pickles, if those of `arrays` are."""
    import pyarrow

    pickled = getattr(pyarrow, "PyExtensionType", None)
    if pickled is not None and arrays is not None and issubclass(arrays, pickled):
        pickled.set_auto_load(True)
