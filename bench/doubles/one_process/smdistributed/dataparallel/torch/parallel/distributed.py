"""Where SMDDP version 1 has its DistributedDataParallel."""

from smdistributed.dataparallel.torch.distributed import DistributedDataParallel as DistributedDataParallel
