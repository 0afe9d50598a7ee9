"""SMDDP version 1's DistributedDataParallel: torch's, with the documented parameters.

Source: SageMaker Python SDK, doc/api/training/sdp_versions/v1.2.x/smd_data_parallel_pytorch.rst.
"""

import warnings
from typing import Any

import torch

from ..distributed import check_group, check_initialized


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """Keeps the module's weights equal on all ranks: `backward` averages the gradients.

    bucket_cap_mb: megabytes of gradients to average at once, 25 if None. device_ids and output_device, usually the
    rank's GPU, are ignored for a module on the CPU, where torch would refuse them. RuntimeError before
    init_process_group; ValueError for another group than WORLD.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: list[int] | None = None,
        output_device: int | None = None,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: int | None = None,
    ) -> None:
        check_initialized("DistributedDataParallel")
        check_group(process_group)
        options: dict[str, Any] = {} if broadcast_buffers else {"broadcast_buffers": False}
        if any(parameter.device.type != "cpu" for parameter in module.parameters()):
            options |= {"device_ids": device_ids or None, "output_device": output_device}
        with warnings.catch_warnings():
            # AWS's documentation tells scripts to pass False, which torch 2.13 calls deprecated.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            super().__init__(
                module,
                bucket_cap_mb=25 if bucket_cap_mb is None else bucket_cap_mb,
                **options,
            )
