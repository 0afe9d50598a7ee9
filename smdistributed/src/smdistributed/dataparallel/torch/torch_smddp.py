"""SMDDP version 2: `import smdistributed.dataparallel.torch.torch_smddp` registers the backend `smddp`.

Afterwards a script calls `torch.distributed.init_process_group("smddp")` and uses torch's own DDP, FSDP and
collectives. Source: SageMaker Python SDK, doc/api/training/sdp_versions/latest/smd_data_parallel_pytorch.rst.
"""

import os

from .backend import register
from .distributed import join_environment

register()
join_environment(os.environ)
