"""A model's module tree for partitioning: which modules can be cut out or opened, and which tensors they have.

Cutting out a module means that its calls are sent to its owner. So only modules that are called can be cut out; a
ModuleList is never called, and its layers take its place. An opened module runs on partition 0 with its own tensors,
and its children are cut out instead.
"""

import math

import torch
from torch import nn

from .tensor.split import is_distributed, split_of

# torch's other modules may read their children's weights instead of calling them, like MultiheadAttention.
_TORCHS_TO_OPEN = (nn.Sequential, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
_STATES_WITH_GRADIENT = 4  # the parameter, its gradient and two moments of Adam

Tensors = dict[int, torch.Tensor]
"""By id, because tensors compare by value."""


def memory_of(tensors: Tensors) -> float:
    """Bytes that these tensors need in training, without activations."""
    return float(
        sum(
            _elements(tensor) * tensor.element_size() * (_STATES_WITH_GRADIENT if tensor.requires_grad else 1)
            for tensor in tensors.values()
        )
    )


def _elements(tensor: torch.Tensor) -> float:
    """A tensor's elements on a rank. Of a split one the mean over the ranks, because all must cut the model alike."""
    split = split_of(tensor)
    return tensor.numel() if split is None else math.prod(split.shape) / len(split.indexes)


class ModuleTree:
    """The tree below `root`, by the names of named_modules(); "" is the root itself.

    All modules except containers count as called, in the order of their registration.
    """

    def __init__(self, root: nn.Module) -> None:
        self.modules: dict[str, nn.Module] = dict(root.named_modules(remove_duplicate=False))
        self._children: dict[str, list[str]] = {}
        self._tensors = {name: _tensors(module) for name, module in self.modules.items()}

    def is_called(self, name: str) -> bool:
        """Whether a module's forward is probably called: containers such as ModuleList have none of their own."""
        forward = type(self.modules[name]).forward
        return getattr(forward, "__name__", "") != "_forward_unimplemented"

    def can_open(self, name: str) -> bool:
        """Whether a module's children can be cut out instead of it."""
        module = self.modules[name]
        torchs_own = type(module).__module__.startswith("torch.") and not isinstance(module, _TORCHS_TO_OPEN)
        parametrized = hasattr(module, "parametrizations")
        return not torchs_own and not parametrized and not is_distributed(module) and bool(self.children(name))

    def children(self, name: str) -> list[str]:
        """The called modules that replace an opened module, in order; those in containers too."""
        if name not in self._children:
            called: list[str] = []
            for child in self._direct(name):
                called += [child] if self.is_called(child) else self.children(child)
            self._children[name] = called
        return self._children[name]

    def _direct(self, name: str) -> list[str]:
        return [f"{name}.{child}" if name else child for child, _ in self.modules[name].named_children()]

    def called_below(self, name: str) -> list[str]:
        """A module and all called modules below it."""
        return [name, *(each for child in self.children(name) for each in self.called_below(child))]

    def tensors(self, name: str) -> Tensors:
        """The parameters and buffers of a module and all below it."""
        return self._tensors[name]

    def own_tensors(self, name: str) -> Tensors:
        """The parameters and buffers that stay with an opened module: those of no child that is cut out.

        A tensor that the module shares with a child is included.
        """
        cut = {key for child in self.children(name) for key in self.tensors(child)}
        own = {key: tensor for key, tensor in self.tensors(name).items() if key not in cut}
        own.update(_tensors(self.modules[name], recurse=False))
        for child in self._direct(name):
            if not self.is_called(child):
                own.update(self.own_tensors(child))
        return own

    def is_shared(self, name: str) -> bool:
        """Whether the module object occurs in the tree under several names."""
        return sum(module is self.modules[name] for module in self.modules.values()) > 1


def _tensors(module: nn.Module, *, recurse: bool = True) -> Tensors:
    return {id(tensor): tensor for tensor in [*module.parameters(recurse), *module.buffers(recurse)]}
