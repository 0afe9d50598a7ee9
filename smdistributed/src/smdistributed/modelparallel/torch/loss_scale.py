"""What a loss is multiplied with so that small gradients survive float16; pure arithmetic.

Source of the arguments and defaults: SageMaker Python SDK, smd_model_parallel_pytorch.rst, DistributedOptimizer.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class LossScale:
    """A scale that stays (`dynamic` false), or one that halves after an overflow and doubles after a quiet window.

    `delayed_shift` overflows are let pass before the scale falls; a quiet window lets as many pass again, with
    `consecutive_hysteresis` every step without overflow does.
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
        """After a step: it overflowed, and was left out, or not."""
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
    """As DistributedOptimizer is asked for it; ValueError for an argument that is not there."""
    if unknown := [name for name in arguments if name not in _ARGUMENTS]:
        raise ValueError(f"dynamic_loss_args has no {unknown[0]}; it takes {', '.join(_ARGUMENTS)}.")
    if not dynamic:
        return LossScale(scale=float(static or 1.0))
    chosen = {"init_scale": _FIRST_DYNAMIC_SCALE, **arguments}
    return LossScale(scale=float(chosen.pop("init_scale")), dynamic=True, **chosen)
