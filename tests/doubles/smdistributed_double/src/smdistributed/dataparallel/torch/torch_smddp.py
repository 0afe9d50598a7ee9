"""Importing this registers the backend `smddp`, as the real library's import does; here gloo does the work.

As with the real one, a second process group is refused (`new_group()`), and the import fails on a host that the library
does not run on: here where SMDDP_DOUBLE_UNSUPPORTED is set, to the text of the failure.
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
