"""datasets' columns of arrays, kept as a pickle: with stand-ins; the real ones are read on the image of cpu-hf4."""

import sys
from types import ModuleType
from typing import ClassVar

import pytest

from berth.train import array_columns


class Pickled:
    """As pyarrow's PyExtensionType."""

    told: ClassVar[list[bool]] = []

    @classmethod
    def set_auto_load(cls, value: bool) -> None:
        cls.told.append(value)


@pytest.mark.parametrize(
    ("pyarrow", "arrays", "told"),
    [
        ({"PyExtensionType": Pickled}, {"_ArrayXDExtensionType": type("Arrays", (Pickled,), {})}, [True]),
        ({"PyExtensionType": Pickled}, {"_ArrayXDExtensionType": type("Arrays", (), {})}, []),
        ({"PyExtensionType": Pickled}, {}, []),
        ({}, {"_ArrayXDExtensionType": type("Arrays", (Pickled,), {})}, []),
    ],
    ids=["kept as pickles", "a newer datasets", "a user's own datasets", "a newer pyarrow"],
)
def test_pickled_types_are_loaded_only_for_a_datasets_that_keeps_them(
    pyarrow: dict[str, type], arrays: dict[str, type], told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, features = ModuleType("pyarrow"), ModuleType("datasets.features.features")
    vars(library).update(pyarrow)
    vars(features).update(arrays)
    monkeypatch.setitem(sys.modules, "pyarrow", library)
    monkeypatch.setattr(Pickled, "told", [])
    array_columns.after_features(features)
    assert Pickled.told == told
