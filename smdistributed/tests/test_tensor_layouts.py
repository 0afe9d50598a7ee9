"""Layouts of layers, for every version of transformers in docker/pins.toml; see layer_modules.py."""

import tomllib
from pathlib import Path

import layer_modules
import pytest
import transformers
from torch import nn

from berth.smdistributed.modelparallel.torch.tensor.layouts import (
    COLUMNS,
    LayerPlan,
    is_transposed,
    layer_plan,
    outputs_of,
    reason_to_stay_whole,
    table_plan,
)
from berth.smdistributed.modelparallel.torch.tensor.start import lines_about

PINS = Path(__file__).parents[2] / "docker" / "pins.toml"
TABLE = layer_modules.read()
LAYERS = [(version, kind) for version, layers in TABLE.items() for kind in layers]
WHOLE = {"T5Block"}
COUNTS = {"num_attention_heads", "num_heads", "num_kv_heads", "all_head_size", "split_size"}
"""Attributes of an attention that count what a rank has."""


def test_table_has_the_versions_of_the_profiles() -> None:
    software = tomllib.loads(PINS.read_text())["software"]
    assert TABLE.keys() == {each["transformers"] for each in software.values()}


def test_older_versions_lack_only_newer_models() -> None:
    missing = {version: layer_modules.KINDS.keys() - layers.keys() for version, layers in TABLE.items()}
    assert {version: kinds for version, kinds in missing.items() if kinds} == {
        "4.26.0": {"LlamaDecoderLayer", "FalconDecoderLayer"}
    }


@pytest.mark.slow
def test_table_is_that_of_the_installed_version() -> None:
    assert TABLE[transformers.__version__] == layer_modules.layers_of_installed_version()


def plan_of(layer: nn.Module, table: dict[str, str]) -> LayerPlan:
    if type(layer).__name__ == "LlamaDecoderLayer":
        return table_plan(layer, table, 2)
    return layer_plan(layer, 2)


@pytest.mark.parametrize(("version", "kind"), [each for each in LAYERS if each[1] not in WHOLE])
def test_plan_splits_every_matrix_of_a_layer_and_all_counts(version: str, kind: str) -> None:
    layer, table = layer_modules.stand_in(kind, TABLE[version][kind])
    modules = dict(layer.named_modules())
    plan = plan_of(layer, table)
    matrices = {path for path, each in modules.items() if hasattr(each, "out_features") or hasattr(each, "nf")}
    assert {each.path for each in plan.matrices} == matrices
    for matrix in plan.matrices:
        module, features = modules[matrix.path], sorted(int(each) for part in matrix.indexes for each in part)
        if matrix.kind == COLUMNS or not is_transposed(module):  # a Conv1D of 4.26 does not know its inputs
            width = outputs_of(module) if matrix.kind == COLUMNS else module.in_features
            assert features == list(range(width)), matrix.path
    attention = next(path for path in modules if path in plan.draws or f"{path}.attention_dropout" in plan.draws)
    counts = {name: value for name, value in vars(modules[attention]).items() if name in COUNTS}
    assert {each.name: each.values for each in plan.attributes} == {
        name: (value // 2, value // 2) for name, value in counts.items()
    }


@pytest.mark.parametrize("version", TABLE)
def test_layer_of_t5_stays_whole(version: str) -> None:
    layer, _ = layer_modules.stand_in("T5Block", TABLE[version]["T5Block"])
    assert reason_to_stay_whole(layer)


def test_layers_of_one_list_share_a_line() -> None:
    layers = {f"model.layers.{place}": "it has cross attention" for place in (3, 4, 11)}
    whole = {"head": "it is odd", **layers, "model.layers.5": "it is odd"}
    assert lines_about(["model.layers.0", "model.layers.1"], whole, 2) == [
        "smp: model.layers.0 and 1 more modules are split over 2 ranks",
        "smp: head is not split: it is odd",
        "smp: model.layers.3 and 2 more like it are not split: it has cross attention",
        "smp: model.layers.5 is not split: it is odd",
    ]


def test_a_script_that_marks_nothing_is_told_so() -> None:
    (line,) = lines_about([], {}, 2)
    assert line.startswith("smp: tensor_parallel_degree is 2, but the script marks no module")
