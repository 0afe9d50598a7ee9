"""The one state of a process: what was asked for, where this rank stands, the model and optimizer that were wrapped.

Scripts read it as `smp.state`: `smp.state.cfg.fp16`, `smp.state.model`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..parameters import ModelParallelParameters
from .topology import Topology
from .watch import Watch


@dataclass
class ModuleManager:
    """What Hugging Face's Trainer looks at: functions between its state dicts and those of split layers; none here."""

    translate_functions: list[Callable[..., Any]] = field(default_factory=list)


@dataclass
class ProcessState:
    """Set by `init`, DistributedModel and DistributedOptimizer; `groups` by kind of group: ranks and process group."""

    parameters: ModelParallelParameters = field(default_factory=ModelParallelParameters)
    topology: Topology = field(default_factory=lambda: Topology(1))
    groups: Mapping[Any, tuple[tuple[int, ...], Any]] = field(default_factory=dict)
    model: Any = None
    optimizer: Any = None
    initialized: bool = False
    watch: Watch = field(default_factory=lambda: Watch(0, {}))
    module_manager: ModuleManager = field(default_factory=ModuleManager)

    @property
    def cfg(self) -> ModelParallelParameters:
        """The parameters, by the name that published scripts use."""
        return self.parameters

    @property
    def loss_scale(self) -> float:
        """What a loss is multiplied with before its backward pass: above 1 with fp16 only."""
        return 1.0 if self.optimizer is None else float(self.optimizer.loss_scale)

    @property
    def partitioned(self) -> bool:
        """Whether there is a model, and each rank knows its part."""
        return self.model is not None and bool(self.model.partitioned)


state = ProcessState()
