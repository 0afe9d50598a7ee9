"""Which parameters, buffers and modules of a distributed model this rank has.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from .groups import pp_rank
from .partition import owner
from .tensor.split import split_of


class LocalPart(nn.Module):
    """The part of a DistributedModel that asks what this rank has of `module`."""

    module: nn.Module
    partitioned: bool
    _owners: Mapping[str, int]
    _plan: Mapping[str, int]
    _distributed: list[str]
    """Names of the modules that are split over the tensor parallel group."""

    def _is_local(self, name: str) -> bool:
        """Whether this rank owns a parameter, a buffer or a module's extra state (which its module's owner has)."""
        if not self.partitioned and not self._owners:
            return True
        return self._owners.get(name, owner(name, self._plan)) == pp_rank()

    def local_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters of this rank's partition, or of the whole model before it is partitioned."""
        return ((name, each) for name, each in self.module.named_parameters() if self._is_local(name))

    def local_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of `local_named_parameters`."""
        return (each for _, each in self.local_named_parameters())

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and buffers of this rank's partition."""
        return ((name, each) for name, each in self.module.named_buffers() if self._is_local(name))

    def local_buffers(self) -> Iterator[torch.Tensor]:
        """The buffers of `local_named_buffers`."""
        return (each for _, each in self.local_named_buffers())

    def local_named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Names and modules that run on this rank."""
        named = self.module.named_modules()
        return ((name, each) for name, each in named if owner(name, self._plan) == pp_rank())

    def local_modules(self) -> Iterator[nn.Module]:
        """The modules of `local_named_modules`."""
        return (each for _, each in self.local_named_modules())

    def distributed_modules(self) -> Iterator[nn.Module]:
        """The modules that are split over the tensor parallel group."""
        return (self.module.get_submodule(name) for name in self._distributed)

    def is_distributed_parameter(self, parameter: nn.Parameter) -> bool:
        """Whether each rank of the tensor parallel group has only a share of a parameter."""
        return split_of(parameter) is not None

    is_scaled_batch_parameter = is_distributed_parameter

    def is_distributed_buffer(self, buffer: torch.Tensor) -> bool:
        """Whether each rank of the tensor parallel group has only a share of a buffer; always false."""
        return False

    is_scaled_batch_buffer = is_distributed_buffer

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters of which a rank has a share; their gradients are averaged over RDP_GROUP."""
        return ((name, each) for name, each in self.local_named_parameters() if split_of(each) is not None)

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that are whole on this rank; their gradients are averaged over DP_GROUP."""
        return ((name, each) for name, each in self.local_named_parameters() if split_of(each) is None)
