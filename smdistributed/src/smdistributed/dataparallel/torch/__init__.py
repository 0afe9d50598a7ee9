"""SMDDP for PyTorch.

distributed  version 1: `import smdistributed.dataparallel.torch.distributed as dist`
parallel     version 1: its DistributedDataParallel
torch_smddp  version 2: importing it registers the backend `smddp` of torch.distributed
backend      that backend, which version 1 uses as well
"""

from .distributed import get_local_rank, get_rank, get_world_size

__all__ = ["get_local_rank", "get_rank", "get_world_size"]
