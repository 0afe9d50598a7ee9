"""Classes of a script that one of smp.nn's layers replaces where tensor parallelism is on.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch_tensor_parallel.rst.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from ..stand_in import with_methods
from .choice import is_marked

_ARGUMENTS = "_smp_arguments"
"""Attribute of a module of a registered class: the arguments that it was created with."""
Arguments = tuple[Any, dict[str, Any]]


class Replacement(NamedTuple):
    """The layer that replaces a class, and functions that translate arguments and results."""

    dist_module: Any
    init_hook: Callable[..., Arguments] | None
    forward_hook: Callable[..., Arguments] | None
    return_hook: Callable[[Any], Any] | None


_replacements: dict[type[nn.Module], Replacement] = {}


def tp_register_with_module(
    module_cls: type[nn.Module],
    dist_module: Any,
    init_hook: Callable[..., Arguments] | None = None,
    forward_hook: Callable[..., Arguments] | None = None,
    return_hook: Callable[[Any], Any] | None = None,
) -> None:
    """Replace each `module_cls` that is created from now on by a `dist_module`, where tensor parallelism is on."""
    if module_cls not in _replacements:
        plain = module_cls.__init__

        def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
            plain(self, *args, **kwargs)
            self.__dict__.setdefault(_ARGUMENTS, (args, kwargs))

        module_cls.__init__ = init  # type: ignore[method-assign]
    _replacements[module_cls] = Replacement(dist_module, init_hook, forward_hook, return_hook)


def tp_register(dist_module: Any, *hooks: Any, **named_hooks: Any) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """`tp_register_with_module` as a decorator of the class."""

    def register(module_cls: type[nn.Module]) -> type[nn.Module]:
        tp_register_with_module(module_cls, dist_module, *hooks, **named_hooks)
        return module_cls

    return register


def replace_registered(root: nn.Module) -> None:
    """Replace the marked modules of registered classes below `root`."""
    for parent in list(root.modules()):
        for name, child in list(parent.named_children()):
            replacement = _replacements.get(type(child))
            if replacement is not None and is_marked(child):
                setattr(parent, name, _made(child, replacement))


def _made(child: nn.Module, replacement: Replacement) -> nn.Module:
    args, kwargs = child.__dict__[_ARGUMENTS]
    args, kwargs = replacement.init_hook(*args, **kwargs) if replacement.init_hook else (args, kwargs)
    made: nn.Module = replacement.dist_module(*args, **kwargs)
    plain: Callable[..., Any] = type(made).forward

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = replacement.forward_hook(*args, **kwargs) if replacement.forward_hook else (args, kwargs)
        result = plain(self, *args, **kwargs)
        return replacement.return_hook(result) if replacement.return_hook else result

    with_methods(made, forward=forward)
    return made
