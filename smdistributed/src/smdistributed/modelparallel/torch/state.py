"""The library's state in this process: parameters, topology, and the wrapped model and optimizer.

Scripts read it as `smp.state`: `smp.state.cfg.fp16`, `smp.state.model`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..parameters import ModelParallelParameters
from .topology import Topology
from .watch import Watch


class Members(NamedTuple):
    """One of this rank's groups: its ranks in WORLD, and its process groups.

    tensors: for the model's tensors. control: over gloo, for objects; the same one if that uses gloo on the CPU.
    """

    ranks: tuple[int, ...]
    tensors: Any
    control: Any


@dataclass
class ModuleManager:
    """Read by Hugging Face's Trainer: functions that translate state dicts of split layers; there are none."""

    translate_functions: list[Callable[..., Any]] = field(default_factory=list)


@dataclass
class ProcessState:
    """Set by `init`, DistributedModel and DistributedOptimizer. groups: kind of group → its Members.

    exchanges: with the tensor parallel group, None without tensor parallelism.
    """

    parameters: ModelParallelParameters = field(default_factory=ModelParallelParameters)
    topology: Topology = field(default_factory=lambda: Topology(1))
    groups: Mapping[Any, Members] = field(default_factory=dict)
    model: Any = None
    optimizer: Any = None
    initialized: bool = False
    watch: Watch = field(default_factory=lambda: Watch(0, {}))
    exchanges: Any = None
    module_manager: ModuleManager = field(default_factory=ModuleManager)

    @property
    def cfg(self) -> ModelParallelParameters:
        """The parameters under the name that published scripts use."""
        return self.parameters

    @property
    def loss_scale(self) -> float:
        """The factor of the loss before its backward pass; always 1 without fp16."""
        return 1.0 if self.optimizer is None else float(self.optimizer.loss_scale)

    @property
    def partitioned(self) -> bool:
        """Whether a model is wrapped and partitioned."""
        return self.model is not None and bool(self.model.partitioned)


state = ProcessState()
