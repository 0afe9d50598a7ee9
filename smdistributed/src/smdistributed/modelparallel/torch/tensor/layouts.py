"""Which matrices of a layer are split over a tensor parallel group, and how; pure.

Heads stay whole: a rank gets some of the attention heads, and the MLP's features that fall to it. Layers of
transformers have a layout here, by the name of their class; others take theirs from the table `base_model_tp_plan` of
the model's configuration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from .split import even_ranges, feature_indexes

COLUMNS, ROWS = "columns", "rows"
_HEADS = ("num_attention_heads", "num_heads")
_WIDTHS = ("attention_head_size", "head_dim", "head_size")
_FEATURES = ("all_head_size", "split_size")
"""Attributes of attention modules: the number of heads, the features of one, and those of all."""


class Matrix(NamedTuple):
    """A linear module of a layer and each rank's indexes: of its outputs (COLUMNS) or of its inputs (ROWS)."""

    kind: str
    path: str
    indexes: tuple[torch.Tensor, ...]


class Attribute(NamedTuple):
    """An attribute of a module of a layer, and its value on each rank."""

    path: str
    name: str
    values: tuple[int, ...]


@dataclass
class LayerPlan:
    """How a layer is split. draws: the modules that draw random numbers per head, so differently on each rank."""

    matrices: list[Matrix] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)
    draws: tuple[str, ...] = ()


class Whole(ValueError):
    """A layer can't be split; the message says why."""


class Layout(NamedTuple):
    """Where a layer's matrices are. Paths are those of named_modules() below the layer.

    attention: the module that knows the heads. query_key_value: the matrices before the heads. blocks: how many of
    query, key and value follow each other in one matrix. per_head: how many of them each head has in one matrix. The
    paths of an attention or an MLP that the layer lacks are empty.
    """

    attention: str
    query_key_value: tuple[str, ...]
    attention_output: str
    mlp_inputs: tuple[str, ...]
    mlp_output: str
    blocks: int = 1
    per_head: int = 1


def _three(before: str) -> tuple[str, ...]:
    return tuple(f"{before}.{name}" for name in ("query", "key", "value"))


def _projections(before: str) -> tuple[str, ...]:
    return tuple(f"{before}.{name}_proj" for name in "qkv")


_BERT = Layout(
    "attention.self", _three("attention.self"), "attention.output.dense", ("intermediate.dense",), "output.dense"
)
_VIT = Layout("attention", _projections("attention"), "attention.o_proj", ("mlp.fc1",), "mlp.fc2")
_OLDER_VIT = Layout(
    "attention.attention",
    _three("attention.attention"),
    "attention.output.dense",
    ("intermediate.dense",),
    "output.dense",
)
LAYOUTS: Mapping[str, Sequence[Layout]] = {
    "BertLayer": [_BERT],
    "RobertaLayer": [_BERT],
    "ViTLayer": [_VIT, _OLDER_VIT],
    "GPT2Block": [Layout("attn", ("attn.c_attn",), "attn.c_proj", ("mlp.c_fc",), "mlp.c_proj", blocks=3)],
    "GPTJBlock": [Layout("attn", _projections("attn"), "attn.out_proj", ("mlp.fc_in",), "mlp.fc_out")],
    "GPTNeoXLayer": [
        Layout(
            "attention",
            ("attention.query_key_value",),
            "attention.dense",
            ("mlp.dense_h_to_4h",),
            "mlp.dense_4h_to_h",
            per_head=3,
        )
    ],
    "DistributedAttentionLayer": [Layout("", ("query", "key", "value"), "dense", (), "")],
    "DistributedTransformerOutputLayer": [Layout("", (), "", ("dense1",), "dense2")],
}
"""Class of a layer → its layouts in the versions of transformers; the first one whose modules exist counts."""


def has_layout(layer: nn.Module) -> bool:
    """Whether the layer's class is in LAYOUTS."""
    return type(layer).__name__ in LAYOUTS


def layer_plan(layer: nn.Module, ranks: int) -> LayerPlan:
    """How to split a layer of a class in LAYOUTS. Whole if it can't be split."""
    modules = dict(layer.named_modules())
    for layout in LAYOUTS[type(layer).__name__]:
        paths = (*layout.query_key_value, layout.attention_output, *layout.mlp_inputs, layout.mlp_output)
        if {layout.attention, *filter(None, paths)} <= modules.keys():
            break
    else:
        raise Whole("this version of transformers builds it of other modules")
    if "crossattention" in modules:
        raise Whole("it has cross attention")
    if not layout.query_key_value:
        return LayerPlan(mlp_matrices(modules, layout.mlp_inputs, layout.mlp_output, ranks))
    attention = modules[layout.attention]
    heads, width = _first(attention, _HEADS), _first(attention, _WIDTHS)
    if heads < ranks:
        raise Whole(f"it has fewer attention heads ({heads}) than ranks ({ranks})")
    matrices = [
        *(Matrix(COLUMNS, path, feature_indexes(heads, ranks, layout.per_head * width, layout.blocks))
          for path in layout.query_key_value),
        Matrix(ROWS, layout.attention_output, feature_indexes(heads, ranks, width)),
        *(mlp_matrices(modules, layout.mlp_inputs, layout.mlp_output, ranks) if layout.mlp_inputs else ()),
    ]  # fmt: skip
    return LayerPlan(matrices, _local_heads(layout.attention, attention, heads, width, ranks), (layout.attention,))


def mlp_matrices(modules: Mapping[str, nn.Module], inputs: Sequence[str], output: str, ranks: int) -> list[Matrix]:
    """The matrices of an MLP, of which each rank gets some of the features in the middle."""
    indexes = feature_indexes(outputs_of(modules[inputs[0]]), ranks)
    return [*(Matrix(COLUMNS, path, indexes) for path in inputs), Matrix(ROWS, output, indexes)]


def outputs_of(linear: Any) -> int:
    """The number of features that a linear module returns."""
    return int(linear.nf if is_transposed(linear) else linear.out_features)


def is_transposed(linear: nn.Module) -> bool:
    """Whether a module is transformers' Conv1D, whose weight is the transpose of a Linear's."""
    return type(linear).__name__ == "Conv1D"


def _first(attention: nn.Module, names: Sequence[str]) -> int:
    """The value of the first of these attributes that the attention or its configuration has."""
    for owner in (attention, getattr(attention, "config", None)):
        for name in names:
            if isinstance(value := getattr(owner, name, None), int):
                return value
    raise Whole(f"its attention has no {names[0]}")


def _local_heads(path: str, attention: nn.Module, heads: int, width: int, ranks: int) -> list[Attribute]:
    counts = [len(each) for each in even_ranges(heads, ranks)]
    units = {**dict.fromkeys(_HEADS, 1), **dict.fromkeys(_FEATURES, width)}
    return [
        Attribute(path, name, tuple(count * unit for count in counts))
        for name, unit in units.items()
        if name in vars(attention)
    ]


_SELF_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")


def table_plan(layer: nn.Module, table: Mapping[str, str], ranks: int) -> LayerPlan:
    """How to split a layer by the entries of its configuration's `base_model_tp_plan`: path in the layer → kind.

    Whole for a table with other kinds of splits than those of Llama's layers.
    """
    modules = dict(layer.named_modules())
    kinds = {path: kind for path, kind in table.items() if path in modules}
    if set(kinds.values()) - {"colwise", "rowwise"} or not set(_SELF_ATTENTION) <= kinds.keys():
        raise Whole("transformers splits it in a way that is not supported here")
    attention = modules["self_attn"]
    heads, pairs = _first(attention, _HEADS), _first(attention, ("num_key_value_heads", *_HEADS))
    if pairs < ranks:
        raise Whole(f"it has fewer pairs of keys and values ({pairs}) than ranks ({ranks})")
    width = _first(attention, _WIDTHS)
    queries, keys = feature_indexes(pairs, ranks, heads // pairs * width), feature_indexes(pairs, ranks, width)
    query, key, value, output = _SELF_ATTENTION
    inputs = [path for path, kind in kinds.items() if kind == "colwise" and path not in _SELF_ATTENTION]
    outputs = [path for path, kind in kinds.items() if kind == "rowwise" and path not in _SELF_ATTENTION]
    if not inputs or len(outputs) != 1:
        raise Whole("its MLP is not one that transformers splits by columns and rows")
    return LayerPlan(
        [
            Matrix(COLUMNS, query, queries), Matrix(COLUMNS, key, keys), Matrix(COLUMNS, value, keys),
            Matrix(ROWS, output, queries), *mlp_matrices(modules, inputs, outputs[0], ranks),
        ],
        [],
        ("self_attn",),
    )  # fmt: skip
