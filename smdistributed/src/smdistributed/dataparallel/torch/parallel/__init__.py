"""SMDDP version 1: `from smdistributed.dataparallel.torch.parallel import DistributedDataParallel`.

distributed  the class
"""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
