"""Importing this registers the backend `smddp`, as the real library's import does; here gloo does the work.

As in the real library, a second process group (`new_group()`) is refused. The real import fails on a host that the
library does not support; this one fails if SMDDP_DOUBLE_UNSUPPORTED is set, with its value as the error message.
"""

import os
from datetime import timedelta

import torch.distributed as dist

if os.environ.get("SMDDP_DOUBLE_UNSUPPORTED"):
    raise RuntimeError(os.environ["SMDDP_DOUBLE_UNSUPPORTED"])

_groups = 0


def _make(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
    global _groups
    _groups += 1
    if _groups > 1:
        raise RuntimeError("SMDDP does not support new_group()")
    return dist.ProcessGroupGloo(store, rank, size, timeout)


dist.Backend.register_backend("smddp", _make, devices=["cpu", "cuda"])
