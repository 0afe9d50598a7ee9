"""The factor of the loss that keeps small gradients from vanishing in float16; pure arithmetic.

Source of the arguments and defaults: SageMaker Python SDK, smd_model_parallel_pytorch.rst, DistributedOptimizer.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class LossScale:
    """A fixed scale, or a dynamic one: divided by `scale_factor` after overflows, multiplied after a window without.

    The scale falls from overflow number `delayed_shift` on; earlier ones are tolerated. The count starts again after a
    window without overflow, or, with `consecutive_hysteresis`, after every step without one.
    """

    scale: float = 1.0
    dynamic: bool = False
    scale_factor: float = 2.0
    scale_window: int = 1000
    min_scale: float = 1.0
    delayed_shift: int = 1
    consecutive_hysteresis: bool = False
    quiet_steps: int = 0
    overflows_passed: int = 0

    def update(self, *, overflow: bool) -> None:
        """Call after each step. overflow: whether the step overflowed and was skipped."""
        if not self.dynamic:
            return
        if overflow:
            self.quiet_steps = 0
            if self.overflows_passed + 1 >= self.delayed_shift:
                self.scale = max(self.scale / self.scale_factor, self.min_scale)
            else:
                self.overflows_passed += 1
            return
        self.quiet_steps += 1
        if self.consecutive_hysteresis:
            self.overflows_passed = 0
        if self.quiet_steps % self.scale_window == 0:
            self.overflows_passed = 0
            self.scale *= self.scale_factor

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        for field in fields(self):
            setattr(self, field.name, values[field.name])


_ARGUMENTS = ("init_scale", "scale_factor", "scale_window", "min_scale", "delayed_shift", "consecutive_hysteresis")
_FIRST_DYNAMIC_SCALE = 2.0**32


def loss_scale(static: float | None, *, dynamic: bool, arguments: Mapping[str, Any]) -> LossScale:
    """The LossScale for DistributedOptimizer's arguments; ValueError for an unknown argument."""
    if unknown := [name for name in arguments if name not in _ARGUMENTS]:
        raise ValueError(f"dynamic_loss_args has no {unknown[0]}; it takes {', '.join(_ARGUMENTS)}.")
    if not dynamic:
        return LossScale(scale=float(static or 1.0))
    settings = {"init_scale": _FIRST_DYNAMIC_SCALE, **arguments}
    return LossScale(scale=float(settings.pop("init_scale")), dynamic=True, **settings)
