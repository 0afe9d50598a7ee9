"""Which modules are distributed: those that the script marks, if they can be split.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch_tensor_parallel.rst.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from torch import nn

from ..groups import tp_rank, tp_size
from ..seeds import DRAWS_APART
from ..state import state
from ..tags import tagged
from .layouts import ROWS, LayerPlan, Whole, has_layout, layer_plan, reason_to_stay_whole, table_plan
from .matrices import own_heads, split_columns, split_rows, split_words
from .regions import make_region
from .split import feature_indexes, mark_distributed, split_of

_TAG = "_smp_tensor_parallelism"
_LABELS = {"labels", "start_positions"}
"""Arguments of models that compute a loss."""


class Tag(NamedTuple):
    """What the script says about a module. named: by set_tensor_parallelism on the module itself."""

    enabled: bool
    embeddings: bool = False
    named: bool = False


def tensor_parallelism(enabled: bool = True, **kwargs: Any) -> AbstractContextManager[None]:  # noqa: FBT001, FBT002
    """Distribute the modules that are created in this context, or do not; the innermost context wins.

    kwargs: of smp.nn's layers; distribute_embedding also splits embeddings.
    """
    if enabled:
        refuse_alibi("smp.tensor_parallelism", kwargs)
    return tagged(_TAG, Tag(enabled, embeddings=bool(kwargs.get("distribute_embedding"))))


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **kwargs: Any) -> None:  # noqa: FBT001, FBT002
    """Distribute a module and its submodules, or do not. RuntimeError after smp.DistributedModel."""
    if state.model is not None:
        raise RuntimeError("The model is distributed already; call smp.set_tensor_parallelism before DistributedModel.")
    if enabled:
        refuse_alibi("smp.set_tensor_parallelism", kwargs)
    for each in module.modules():
        each.__dict__[_TAG] = Tag(enabled, bool(kwargs.get("distribute_embedding")), each is module)


def refuse_alibi(called: str, arguments: Mapping[str, Any]) -> None:
    """TypeError for use_alibi, an argument of smp.nn's layers: without it the script would train another model."""
    if arguments.get("use_alibi"):
        raise TypeError(
            f"{called} does not support use_alibi: attention here has no linear biases (ALiBi), so the model would be "
            "another one; leave it out or set it to false."
        )


def mark_unless_disabled(module: nn.Module) -> None:
    """Mark a layer of smp.nn, unless it is created where tensor parallelism is disabled."""
    module.__dict__.setdefault(_TAG, Tag(enabled=True, embeddings=isinstance(module, nn.Embedding)))


def is_marked(module: nn.Module) -> bool:
    """Whether tensor parallelism is on for a module."""
    tag: Tag | None = module.__dict__.get(_TAG)
    return tag is not None and tag.enabled


def distribute(root: nn.Module) -> tuple[list[str], dict[str, str]]:
    """Split the outermost marked modules that can be split.

    Returns their names, and name → reason for the marked layers and matrices that stay whole.
    """
    chooser = _Chooser(root)
    chooser.visit("", root)
    for name in dict.fromkeys(region_of(root, name) for name in chooser.chosen):
        make_region(root.get_submodule(name), name)
    for module in root.modules():
        module.register_state_dict_pre_hook(_refuse_shares)  # type: ignore[no-untyped-call]
    return chooser.chosen, chooser.whole


def _refuse_shares(module: nn.Module, prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
    """RuntimeError if a script asks the module itself for its state; the library asks with `keep_vars`."""
    if not keep_vars and any(split_of(each) for each in module.parameters()):
        raise RuntimeError(
            "The module has only this rank's shares of the parameters that tensor parallelism splits; call "
            "state_dict() of smp.DistributedModel, on every rank."
        )


class _Chooser:
    """Walks through the tree of `root` and splits what is marked."""

    def __init__(self, root: nn.Module) -> None:
        self.chosen: list[str] = []
        self.whole: dict[str, str] = {}
        self._users: dict[int, int] = {}
        for _, parameter in root.named_parameters(remove_duplicate=False):
            self._users[id(parameter)] = self._users.get(id(parameter), 0) + 1
        self._embedded = {id(each.weight) for each in root.modules() if isinstance(each, nn.Embedding)}
        self._tables = {id(layer): table for layer, table in _tables(root)}

    def visit(self, name: str, module: nn.Module) -> None:
        """Split the module, or look at its children. A layer or matrix that can't be split stays whole."""
        tag = module.__dict__.get(_TAG)
        if tag is not None and tag.enabled:
            try:
                split = self._split(module, tag)
            except Whole as reason:
                self.whole[name] = str(reason)
                return
            if split:
                mark_distributed(module)
                self.chosen.append(name)
                return
        for child, each in module.named_children():
            self.visit(f"{name}.{child}" if name else child, each)

    def _split(self, module: nn.Module, tag: Tag) -> bool:
        """Split a layer or a matrix; False if the module is neither. Whole if it can't be split."""
        if reason := reason_to_stay_whole(module):
            raise Whole(reason)
        is_layer = has_layout(module) or id(module) in self._tables
        is_words = _computes_like(module, nn.Embedding) and (tag.embeddings or tag.named)
        if not (is_layer or is_words or _computes_like(module, nn.Linear)):
            return False
        if not tag.embeddings and any(self._users[id(each)] > 1 for each in module.parameters()):
            raise Whole("it shares a parameter with another module")
        if has_layout(module):
            apply(module, layer_plan(module, tp_size()))
        elif is_layer:
            apply(module, table_plan(module, self._tables[id(module)], tp_size()))
        else:
            self._split_matrix(module)
        return True

    def _split_matrix(self, module: nn.Module) -> None:
        """Split a Linear or an Embedding that belongs to no layer."""
        if isinstance(module, nn.Embedding):
            if module.max_norm is not None:
                raise Whole("it has max_norm")
            split_words(module, feature_indexes(_enough(module.num_embeddings), tp_size()))
        elif isinstance(module, nn.Linear) and id(module.weight) in self._embedded:
            split_columns(module, feature_indexes(_enough(module.out_features), tp_size()), all_columns=True)
        elif isinstance(module, nn.Linear):
            split_rows(module, feature_indexes(_enough(module.in_features), tp_size()), whole_input=True)


def _computes_like(module: nn.Module, kind: type[nn.Module]) -> bool:
    return isinstance(module, kind) and type(module).forward is kind.forward


def _enough(features: int) -> int:
    if features < tp_size():
        raise Whole(f"it has fewer features ({features}) than ranks ({tp_size()})")
    return features


def _tables(root: nn.Module) -> Iterator[tuple[nn.Module, Mapping[str, str]]]:
    """The layers of models of transformers with a `base_model_tp_plan`, each with the entries for its modules."""
    for model in root.modules():
        table = getattr(getattr(model, "config", None), "base_model_tp_plan", None)
        layers = getattr(model, "layers", None)
        if isinstance(table, Mapping) and isinstance(layers, nn.ModuleList):
            prefix = "layers.*."
            entries = {path.removeprefix(prefix): kind for path, kind in table.items() if path.startswith(prefix)}
            yield from ((layer, entries) for layer in layers)


def apply(module: nn.Module, plan: LayerPlan) -> None:
    """Split a layer on this rank."""
    for kind, path, indexes in plan.matrices:
        split = split_rows if kind == ROWS else split_columns
        split(module.get_submodule(path), indexes)
    for path, name, values in plan.attributes:
        setattr(module.get_submodule(path), name, values[tp_rank()])
    for path, name, indexes in plan.arguments:
        own_heads(module.get_submodule(path), name, indexes)
    for path in plan.draws:
        module.get_submodule(path).__dict__[DRAWS_APART] = tp_rank()


def region_of(root: nn.Module, name: str) -> str:
    """The module whose region contains a distributed module: the outermost base model of transformers, else itself.

    T5ForConditionalGeneration has no base model in it. It is none itself: its loss is that of a rank's own batch.
    """
    parts = name.split(".") if name else []
    for count in range(len(parts) + 1):
        above = ".".join(parts[:count])
        module = root.get_submodule(above)
        prefix = getattr(module, "base_model_prefix", None)
        if not isinstance(prefix, str):
            continue
        if not prefix or not hasattr(module, prefix):
            if _LABELS & inspect.signature(type(module).forward).parameters.keys():
                continue
            return above  # it is a base model itself
        if parts[count : count + 1] == [prefix]:
            return f"{above}.{prefix}" if above else prefix
    return name
