"""SMDDP version 2: torch.distributed's own functions, which become those of the replicas of one process."""

import torch.distributed
import torch.nn.parallel

from smdistributed.dataparallel.torch import distributed

for _name in ("init_process_group", "is_initialized", "get_rank", "get_world_size", "barrier"):
    setattr(torch.distributed, _name, getattr(distributed, _name))
torch.nn.parallel.DistributedDataParallel = distributed.DistributedDataParallel  # type: ignore[misc, assignment]
