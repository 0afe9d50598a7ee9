"""Changes that a module made in copies of its arguments are applied to the arguments."""

import copy
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import torch
from torch import nn

from berth.smdistributed.modelparallel.torch.in_place import (
    TakeOver,
    WithArguments,
    as_in_one_process,
    can_change,
)
from berth.smdistributed.modelparallel.torch.remote import pack, same_form

Pair = namedtuple("Pair", "left right")


def test_can_change_finds_mutable_objects() -> None:
    assert not can_change((torch.ones(1), 1, "text", None, (True, torch.float32), nn.Linear(1, 1)))
    assert all(can_change((1, (each,))) for each in ([], {}, set(), SimpleNamespace()))


def test_take_over_keeps_the_callers_objects() -> None:
    inner: dict[str, object] = {"a": 1, "gone": 2}
    own = [1, inner, SimpleNamespace(x=[1]), Pair({"deep"}, 2), OrderedDict(a=1)]
    parts = list(own)
    changed = copy.deepcopy(own)
    changed[1].pop("gone")  # type: ignore[attr-defined]
    changed[1]["new"] = changed[1]  # type: ignore[index]
    changed[2].x.append(2)  # type: ignore[attr-defined]
    changed[2].y = 3  # type: ignore[attr-defined]
    changed[3].left.add("er")  # type: ignore[attr-defined]
    changed[4]["b"] = 2  # type: ignore[index]
    changed.append("more")
    assert TakeOver()(own, changed) is own
    assert all(one is other for one, other in zip(parts, own, strict=False))
    assert inner == {"a": 1, "new": inner}
    assert vars(own[2]) == {"x": [1, 2], "y": 3}
    assert own[3:] == [Pair({"deep", "er"}, 2), OrderedDict(a=1, b=2), "more"]


def test_result_contains_the_callers_objects() -> None:
    cache: list[int] = []
    changed = [1]
    result = as_in_one_process(WithArguments((changed, {"cache": changed, "n": 1}), ((changed,), {})), ((cache,), {}))
    assert cache == [1]
    assert result[0] is cache
    assert result[1]["cache"] is cache
    assert as_in_one_process(result, ((), {})) is result


def test_same_form_compares_names_and_numbers_but_no_data() -> None:
    layer, tensor = nn.Linear(1, 1), torch.ones(1)
    known = {id(layer): "layer", id(tensor): "input 0"}
    one, like, other = (
        pack([layer, tensor, number, torch.ones(1) * value], known)[0] for number, value in ((1, 2), (1, 3), (2, 2))
    )
    assert same_form(one, like, 1)
    assert not same_form(one, other, 1)
