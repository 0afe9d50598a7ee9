"""datasets before 2.15 next to a pyarrow from 14 to 20: has it read its own columns of arrays (Array2D to Array5D).

Such a datasets keeps their type as a pickle, which these pyarrows no longer load unless they are told to: map and
load_from_disk of images as arrays end in "extension<arrow.py_extension_type<…>> does not have a datasets dtype
equivalent". Told so, a data set of the job's own may run code, as it could with the pyarrow of that time. Called by
berth.train.start_hook once a program has imported datasets.features.features.
"""

from types import ModuleType


def after_features(module: ModuleType) -> None:
    """For datasets.features.features, once it is imported; a newer one keeps no pickles, and is left alone."""
    import pyarrow

    pickled = getattr(pyarrow, "PyExtensionType", None)
    arrays = getattr(module, "_ArrayXDExtensionType", None)
    if pickled is not None and arrays is not None and issubclass(arrays, pickled):
        pickled.set_auto_load(True)
