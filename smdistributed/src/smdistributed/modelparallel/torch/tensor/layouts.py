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


class Argument(NamedTuple):
    """A keyword argument of a module of a layer: its first dimension is the batch times all heads.

    indexes: the heads of each rank.
    """

    path: str
    name: str
    indexes: tuple[torch.Tensor, ...]


@dataclass
class LayerPlan:
    """How a layer is split. draws: the modules that draw random numbers per head, so differently on each rank."""

    matrices: list[Matrix] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)
    draws: tuple[str, ...] = ()
    arguments: list[Argument] = field(default_factory=list)


class Whole(ValueError):
    """A layer can't be split; the message says why."""


class Layout(NamedTuple):
    """Where a layer's matrices are. Paths are those of named_modules() below the layer.

    attention: the module that knows the heads. query_key_value: the matrices before the heads. blocks: how many of
    query, key and value follow each other in one matrix. per_head: how many of them each head has in one matrix. The
    paths of an attention or an MLP that the layer lacks are empty.

    groups: the attribute of the attention with its number of groups, if the heads of a group share key and value.
    draws: the module that draws per head, if the attention itself draws what all ranks need. bias: the argument of the
    attention with a bias per head.
    """

    attention: str
    query_key_value: tuple[str, ...]
    attention_output: str
    mlp_inputs: tuple[str, ...]
    mlp_output: str
    blocks: int = 1
    per_head: int = 1
    groups: str = ""
    draws: str = ""
    bias: str = ""


def _three(before: str) -> tuple[str, ...]:
    return tuple(f"{before}.{name}" for name in ("query", "key", "value"))


def _projections(before: str) -> tuple[str, ...]:
    return tuple(f"{before}.{name}_proj" for name in "qkv")


def _in_one_matrix(before: str) -> Layout:
    """GPT-NeoX's layout: each head has its query, key and value next to each other."""
    matrices = (f"{before}.query_key_value",), f"{before}.dense", ("mlp.dense_h_to_4h",), "mlp.dense_4h_to_h"
    return Layout(before, *matrices, per_head=3)


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
    "GPTNeoXLayer": [_in_one_matrix("attention")],
    "BloomBlock": [_in_one_matrix("self_attention")._replace(draws="self_attention.attention_dropout", bias="alibi")],
    "FalconDecoderLayer": [_in_one_matrix("self_attention")._replace(groups="num_kv_heads")],
    "DistributedAttentionLayer": [Layout("", ("query", "key", "value"), "dense", (), "")],
    "DistributedTransformerOutputLayer": [Layout("", (), "", ("dense1",), "dense2")],
}
"""Class of a layer → its layouts in the versions of transformers; the first one whose modules exist counts."""
_WHOLE = dict.fromkeys(
    ("T5Block", "MT5Block", "UMT5Block", "LongT5Block"), "its layers share position biases of all attention heads"
)
"""Class of a layer that stays whole, with the matrices in it → the reason."""


def has_layout(layer: nn.Module) -> bool:
    """Whether the layer's class is in LAYOUTS."""
    return type(layer).__name__ in LAYOUTS


def reason_to_stay_whole(layer: nn.Module) -> str | None:
    """Why no matrix in a layer may be split, if so."""
    if isinstance(layer, (nn.MultiheadAttention, nn.TransformerEncoderLayer)):
        return "torch reads its weights and does not call its modules"
    return _WHOLE.get(type(layer).__name__)


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
    plan = _attention_plan(layout, modules[layout.attention], ranks)
    if layout.mlp_inputs:
        plan.matrices += mlp_matrices(modules, layout.mlp_inputs, layout.mlp_output, ranks)
    return plan


def _attention_plan(layout: Layout, attention: nn.Module, ranks: int) -> LayerPlan:
    """How to split the attention of a layer: by heads, or by groups of heads that share a key and a value."""
    heads, width = _first(attention, _HEADS), _first(attention, _WIDTHS)
    groups = _first(attention, (layout.groups,)) if layout.groups else heads
    if groups < ranks:
        kind = "attention heads" if groups == heads else "pairs of keys and values"
        raise Whole(f"it has fewer {kind} ({groups}) than ranks ({ranks})")
    if getattr(attention, "slow_but_exact", False) and getattr(attention, "pretraining_tp", 1) > 1:
        raise Whole("slow_but_exact reads the weights of whole matrices")
    if getattr(getattr(attention, "config", None), "alibi", False):
        raise Whole("its attention mask has position biases (alibi) of all attention heads")
    queries = heads // groups
    inputs = feature_indexes(groups, ranks, (queries - 1 + layout.per_head) * width, layout.blocks)
    matrices = [
        *(Matrix(COLUMNS, path, inputs) for path in layout.query_key_value),
        Matrix(ROWS, layout.attention_output, feature_indexes(groups, ranks, queries * width)),
    ]
    counts = {**dict.fromkeys(_HEADS, queries), **dict.fromkeys(_FEATURES, queries * width), layout.groups: 1}
    attributes = [
        Attribute(layout.attention, name, tuple(len(each) * count for each in even_ranges(groups, ranks)))
        for name, count in counts.items()
        if name in vars(attention)
    ]
    arguments = [Argument(layout.attention, layout.bias, feature_indexes(heads, ranks))] if layout.bias else []
    return LayerPlan(matrices, attributes, (layout.draws or layout.attention,), arguments)


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
