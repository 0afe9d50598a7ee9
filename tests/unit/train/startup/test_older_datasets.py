"""The patches of an older datasets, tested with doubles; tests/images/train uses the real one in the image cpu-hf4."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest

from berth.train.startup import older_datasets


class Pickled:
    """Like pyarrow's PyExtensionType."""

    calls: ClassVar[list[bool]] = []

    @classmethod
    def set_auto_load(cls, value: bool) -> None:
        cls.calls.append(value)


@pytest.mark.parametrize(
    ("pyarrow", "arrays", "calls"),
    [
        ({"PyExtensionType": Pickled}, {"_ArrayXDExtensionType": type("Arrays", (Pickled,), {})}, [True]),
        ({"PyExtensionType": Pickled}, {"_ArrayXDExtensionType": type("Arrays", (), {})}, []),
        ({"PyExtensionType": Pickled}, {}, []),
        ({}, {"_ArrayXDExtensionType": type("Arrays", (Pickled,), {})}, []),
    ],
    ids=["stored as pickles", "newer datasets", "own module datasets", "newer pyarrow"],
)
def test_pickled_types_are_enabled_only_for_older_datasets(
    pyarrow: dict[str, type], arrays: dict[str, type], calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, features = ModuleType("pyarrow"), ModuleType("datasets.features.features")
    vars(library).update(pyarrow)
    vars(features).update(arrays)
    monkeypatch.setitem(sys.modules, "pyarrow", library)
    monkeypatch.setattr(Pickled, "calls", [])
    older_datasets.after_features(features)
    assert Pickled.calls == calls


@dataclass
class Value:
    dtype: str


@dataclass
class Sequence:
    """Like the Sequence of datasets before 4."""

    feature: Any
    length: int = -1


def features_module(**more: Any) -> Any:
    """Like datasets.features.features of 2.9, which calls generate_from_dict by its name in the module."""
    module = ModuleType("datasets.features.features")

    def generate(described: Any) -> Any:
        if "_type" not in described:
            return {name: vars(module)["generate_from_dict"](each) for name, each in described.items()}
        return Value(described["dtype"])

    vars(module).update({"generate_from_dict": generate, "Sequence": Sequence, **more})
    return module


INT = {"_type": "Value", "dtype": "int64"}


@pytest.mark.parametrize(
    ("described", "features"),
    [
        ({"a": INT}, {"a": Value("int64")}),
        ({"a": {"_type": "List", "feature": INT}}, {"a": Sequence(Value("int64"))}),
        (
            {"a": {"_type": "List", "feature": {"_type": "List", "feature": INT, "length": 2}}},
            {"a": Sequence(Sequence(Value("int64"), 2))},
        ),
        ({"a": {"_type": "List", "feature": {"b": INT}}}, {"a": [{"b": Value("int64")}]}),
    ],
    ids=["no list", "list", "list of lists", "list of several columns"],
)
def test_list_becomes_older_sequence(described: Any, features: Any) -> None:
    module = features_module()
    older_datasets.after_features(module)
    assert module.generate_from_dict(described) == features


def test_newer_datasets_is_not_patched() -> None:
    module = features_module(List=Sequence)
    own = module.generate_from_dict
    older_datasets.after_features(module)
    assert module.generate_from_dict is own
